// Recovery beside jobs: how fast a member is recovered against how long a request waits, one line per place on the
// axis (the load, as a rule), one mark per subject value.

const tradeOffOf = (entry) => (entry?.sync > 0 && entry.p99 > 0 ? [entry.sync / 1024, entry.p99 / 1e6] : null);

/** A panel's lines: a place on the axis with its points in order of the subject's values. */
function tradeOffLines(panel) {
  return model.positions.map((position, place) => ({
    place,
    name: model.axis ? `${factorName(model.axis).toLowerCase()} ${position}` : 'all',
    points: shownValues().map(({ value, index }) => ({ value, index, entry: panel.at(position, `value:${value}`) }))
      .filter(({ entry }) => tradeOffOf(entry)),
  })).filter(({ points }) => points.length > 0);
}

function tradeOffTip(lines, { seriesIndex, dataIndex }) {
  const line = lines[seriesIndex];
  const chosen = line.points[dataIndex];
  const row = ({ value, index, entry }) => [colourOf(index), value, `${time(entry.p99)}`, `${digits(entry.sync / 1024)} MiB/s, ${digits(entry.mean)} MB/s`];
  return tipBody(`${line.name}: ${factorName(study.subject)} ${chosen.value}`, line.points.map(row), 'p99; recovery, throughput of the job');
}

function tradeOffOption(panel) {
  const colours = tokens();
  const lines = tradeOffLines(panel);
  const points = lines.flatMap((line) => line.points.map(({ entry }) => tradeOffOf(entry)));
  const axis = (place, write) => valueAxis(points.map((pair) => pair[place]), 'log', write, colours);
  return {
    grid: { left: 8, right: 14, top: 26, bottom: 22, containLabel: true },
    tooltip: tooltip('item', (hovered) => tradeOffTip(lines, hovered)),
    xAxis: { ...axis(0, tick), name: 'recovery, MiB/s', nameLocation: 'middle', nameGap: 26, nameTextStyle: { color: colours.muted, fontSize: 11, fontFamily: FONT } },
    yAxis: { ...axis(1, tick), ...unitName('p99, ms', colours) },
    series: lines.map((line) => ({
      type: 'line',
      name: line.name,
      symbol: MARKS[line.place % MARKS.length],
      symbolSize: 8,
      showAllSymbol: true,
      color: colours.muted,
      lineStyle: { width: 1.5, color: colours.muted, type: line.place % 2 === 0 ? 'solid' : [6, 4] },
      emphasis: { focus: 'series' },
      data: line.points.map(({ index, entry }) => ({ value: tradeOffOf(entry), itemStyle: { color: colourOf(index) } })),
    })),
  };
}

/** Which line is which. */
function tradeOffKey() {
  const names = { circle: 'circles', rect: 'squares', triangle: 'triangles', diamond: 'diamonds' };
  const lines = model.positions.map((position, place) => `${position} ${names[MARKS[place % MARKS.length]]}, ${place % 2 === 0 ? 'solid' : 'dashed'}`);
  return model.axis && lines.length > 1 ? ` Lines by ${factorName(model.axis).toLowerCase()}: ${lines.join('; ')}.` : '';
}

/** What the chart shows, for readers who do not see it. */
function tradeOffWords(panel) {
  const lines = tradeOffLines(panel).map(({ name, points }) => `${name}: ${points.map(({ value, entry }) => `${value} ${digits(entry.sync / 1024)} MiB/s, p99 ${time(entry.p99)}`).join('; ')}`);
  return `Recovery rate and p99, ${panelTitle(panel)}. ${lines.join('. ') || 'No figures'}.`;
}

function tradeOffFigures(panels) {
  return panels.map((panel) => figure(panelTitle(panel), tradeOffWords(panel), () => tradeOffOption(panel)));
}
