// Throughput along the axis (block size, as a rule), one line per subject value, with the 95 % interval of
// the mean over replicates; targets the subject does not touch are dashed. Without an axis the subject's
// values themselves stand along it. A part of the plan without values of the subject has lines of its targets alone.

/** Whiskers, cut where the plot ends, with caps at the ends that lie in it; data rows are [x, low, high, colour]. */
function whiskers(rows) {
  return {
    type: 'custom',
    silent: true,
    z: 3,
    data: rows.map(([x, low, high, colour]) => ({ value: [x, low, high], itemStyle: { color: colour } })),
    encode: { x: 0, y: [1, 2] },
    tooltip: { show: false },
    renderItem: ({ coordSys }, api) => {
      const [x, high] = api.coord([api.value(0), api.value(2)]);
      const low = api.coord([api.value(0), api.value(1)])[1];
      const inside = (y) => Math.min(Math.max(y, coordSys.y), coordSys.y + coordSys.height);
      const [top, bottom] = [inside(high), inside(low)];
      const stroke = { stroke: api.visual('color'), lineWidth: 1, opacity: 0.75, fill: null };
      const line = (x1, y1, x2, y2) => ({ type: 'line', shape: { x1, y1, x2, y2 }, style: stroke });
      const caps = [[top, high], [bottom, low]].filter(([drawn, y]) => Math.abs(drawn - y) < 0.5);
      return { type: 'group', children: [line(x, top, x, bottom), ...caps.map(([y]) => line(x - 3, y, x + 3, y))] };
    },
  };
}

/** A panel's lines: what to draw and to say of each subject value and reference. */
function linesOf(panel, colours) {
  const along = (series) => model.positions.map((position) => panel.at(position, series));
  const values = shownValues().map(({ value, index }) => ({
    name: value, points: along(`value:${value}`), colour: colourOf(index), mark: markOf(index),
    top: value === study.best || study.tied_with.includes(value),
  }));
  const references = model.references.map((target, index) => ({
    name: referenceName(target), points: along(`reference:${target}`),
    ...(model.compares ? { colour: colours.reference, dashed: true } : { colour: colourOf(index), mark: markOf(index), top: true }),
  }));
  return [...values, ...references].filter(({ points }) => points.some((entry) => entry?.mean !== undefined));
}

/** Every number a panel's value axis must hold. */
function numbersOf(lines) {
  return lines.flatMap(({ points }) => points.flatMap((entry) => (entry?.mean === undefined ? [] : [entry.mean, entry.low ?? entry.mean, entry.high ?? entry.mean])));
}

/** Whether what stands along the axis are quantities, which lines may join. */
const isAlongQuantities = () => model.positions.every((position) => !Number.isNaN(quantity(position)));

function lineSeries({ name, points, colour, mark, top, dashed }, surface) {
  const positive = (number) => (number > 0 || choices.scale !== 'log' ? number : null);
  return {
    type: 'line',
    name,
    data: points.map((entry) => positive(entry?.mean ?? null)),
    connectNulls: false,
    symbol: dashed ? 'none' : mark.symbol,
    symbolSize: top ? 7 : 5.5,
    showAllSymbol: true,
    color: colour,
    lineStyle: { width: isAlongQuantities() ? (top ? 2.5 : 1.5) : 0, type: dashed ? [6, 4] : 'solid', color: colour },
    itemStyle: mark?.hollow ? { color: surface, borderColor: colour, borderWidth: 1.5 } : { color: colour },
    emphasis: { focus: 'series', lineStyle: { width: top ? 3.5 : 2.5 } },
    blur: { lineStyle: { opacity: 0.15 }, itemStyle: { opacity: 0.15 } },
    z: top ? 5 : 4,
  };
}

function megabytes(entry) {
  if (entry?.mean === undefined) return entry?.error ? ['no figures', entry.error] : ['–', ''];
  const range = entry.low === undefined ? `${entry.count} run${entry.count === 1 ? '' : 's'}` : `${digits(Math.max(entry.low, 0))} – ${digits(entry.high)}`;
  return [`${digits(entry.mean)} ${entry.unit}`, range];
}

function throughputTip(lines, heading) {
  return (hovered) => {
    const place = (Array.isArray(hovered) ? hovered[0] : hovered).dataIndex;
    const rows = lines.map((line) => [line, line.points[place]]).filter(([, entry]) => entry)
      .sort(([, a], [, b]) => (speedOf(b) || -1) - (speedOf(a) || -1))
      .map(([line, entry]) => [line.colour, line.name, ...megabytes(entry)]);
    return tipBody(heading(place), rows, 'mean and 95 % interval');
  };
}

function lineOption(panel, range) {
  const colours = tokens();
  const lines = linesOf(panel, colours);
  const bounds = lines.flatMap(({ points, colour }) => points.flatMap((entry, place) => (
    entry?.low === undefined || (choices.scale === 'log' && entry.mean <= 0) ? [] : [[place, lowest(entry), entry.high, colour]])));
  return {
    grid: { left: 8, right: 14, top: 26, bottom: 4, containLabel: true },
    tooltip: tooltip('axis', throughputTip(lines, (place) => `${factorName(model.axis)} ${model.positions[place]}`)),
    xAxis: categoryAxis(model.positions, colours, { boundaryGap: !isAlongQuantities() }),
    yAxis: { ...valueAxis(range ?? numbersOf(lines), choices.scale, tick, colours, range !== null), ...unitName(unitOf(panel), colours) },
    series: [...lines.map((line) => lineSeries(line, colours.surface)), ...(bounds.length > 0 ? [whiskers(bounds)] : [])],
  };
}

/** An interval's lower bound as drawn: a logarithmic axis has no place for zero. */
function lowest({ low, mean }) {
  return choices.scale === 'log' ? Math.max(low, mean / 10) : Math.max(low, 0);
}

function unitName(name, colours) {
  return { name, nameLocation: 'end', nameGap: 12, nameTextStyle: { color: colours.muted, fontSize: 11, fontFamily: FONT, align: 'left' } };
}

/** What has a dot each where there is no axis: the subject's values, or the targets of a part without them. */
function dots() {
  if (!model.compares) return model.references.map((target, index) => ({ value: referenceName(target), series: `reference:${target}`, index }));
  return shownValues().map(({ value, index }) => ({ value, series: `value:${value}`, index }));
}

/** With no axis: one dot per subject value, joined where the values are quantities; references as dashed lines. */
function dotOption(panel, range) {
  const colours = tokens();
  const values = dots();
  const entries = values.map(({ series }) => panel.at('', series));
  const references = (model.compares ? model.references : []).map((target) => ({ name: referenceName(target), entry: panel.at('', `reference:${target}`) }))
    .filter(({ entry }) => entry?.mean !== undefined);
  const numbers = [...entries, ...references.map(({ entry }) => entry)].flatMap((entry) => (entry?.mean === undefined ? [] : [entry.mean, entry.low ?? entry.mean, entry.high ?? entry.mean]));
  const quantities = values.every(({ value }) => !Number.isNaN(quantity(value)));
  const bounds = entries.flatMap((entry, place) => (entry?.low === undefined ? [] : [[place, lowest(entry), entry.high, colourOf(values[place].index)]]));
  const rows = (place) => [[colourOf(values[place].index), values[place].value, ...megabytes(entries[place])],
    ...references.map(({ name, entry }) => [colours.reference, name, ...megabytes(entry)])];
  return {
    grid: { left: 8, right: 14, top: 26, bottom: 4, containLabel: true },
    tooltip: tooltip('axis', ([{ dataIndex }]) => tipBody(`${model.compares ? `${factorName(study.subject)} ` : ''}${values[dataIndex].value}`, rows(dataIndex), 'mean and 95 % interval')),
    xAxis: categoryAxis(values.map(({ value }) => value), colours),
    yAxis: { ...valueAxis(range ?? numbers, choices.scale, tick, colours, range !== null), ...unitName(unitOf(panel), colours) },
    series: [
      { type: 'line', lineStyle: { width: quantities ? 1 : 0, color: colours.rule }, symbol: 'circle', symbolSize: 10, showAllSymbol: true, z: 4,
        data: entries.map((entry, place) => ({ value: entry?.mean ?? null, itemStyle: { color: colourOf(values[place].index) } })) },
      ...references.map(({ name, entry }) => ({ type: 'line', name, symbol: 'none', color: colours.reference,
        lineStyle: { type: [6, 4], width: 1.5 }, data: values.map(() => entry.mean) })),
      ...(bounds.length > 0 ? [whiskers(bounds)] : []),
    ],
  };
}

/** What the chart shows, for readers who do not see it. */
function throughputWords(panel) {
  const named = model.compares ? study.subject_values.map((value) => [value, `value:${value}`])
    : model.references.map((target) => [referenceName(target), `reference:${target}`]);
  const best = model.positions.map((position) => {
    const ranked = named.map(([value, series]) => [value, panel.at(position, series)])
      .filter(([, entry]) => entry?.mean !== undefined).sort(([, a], [, b]) => speedOf(b) - speedOf(a));
    return ranked.length > 0 ? `${position} ${ranked[0][0]} (${megabytes(ranked[0][1])[0]})` : null;
  }).filter(Boolean);
  return `${unitOf(panel) === 's' ? 'Time of mkfs' : 'Throughput'}, ${panelTitle(panel)}. ${model.compares ? `Fastest ${factorName(study.subject)}` : 'Figures'}${model.axis ? ` by ${factorName(model.axis).toLowerCase()}` : ''}: ${best.join(', ') || 'no figures'}. The table of cells has every figure.`;
}

function throughputFigures(panels) {
  const colours = tokens();
  const alike = (panel) => panels.filter((other) => unitOf(other) === unitOf(panel));
  const rangeOf = (panel) => (choices.shared ? alike(panel).flatMap((other) => numbersOf(linesOf(other, colours))) : null);
  const option = model.axis ? lineOption : dotOption;
  return panels.map((panel) => figure(panelTitle(panel), throughputWords(panel), () => option(panel, rangeOf(panel))));
}
