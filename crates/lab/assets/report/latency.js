// Latency percentiles by subject value for one chosen cell: a line from p50 to p99.9 with a mark for each.

const cell = { panel: null, position: null, direction: 'read' };
const PERCENTILE_MARKS = ['circle', 'diamond', 'triangle', 'rect'];

/** The rows of the chosen cell: subject values, then references. */
function latencyRows(colours) {
  const panel = model.panels[cell.panel];
  const latencies = (series) => panel.at(cell.position, series)?.latency?.[cell.direction];
  return [
    ...shownValues().map(({ value, index }) => ({ name: value, colour: colourOf(index), latencies: latencies(`value:${value}`) })),
    ...model.references.map((target) => ({ name: referenceName(target), colour: colours.reference, latencies: latencies(`reference:${target}`) })),
  ].filter((row) => row.latencies);
}

/** The shape of a percentile's mark. */
function markShape(kind, x, y, fill, surface) {
  const style = kind === 'circle' ? { fill } : { fill: surface, stroke: fill, lineWidth: 2 };
  if (kind === 'circle') return { type: 'circle', shape: { cx: x, cy: y, r: 5 }, style };
  if (kind === 'rect') return { type: 'rect', shape: { x: x - 4, y: y - 4, width: 8, height: 8 }, style };
  const points = kind === 'diamond' ? [[x, y - 6], [x + 6, y], [x, y + 6], [x - 6, y]] : [[x, y - 6], [x + 6, y + 5], [x - 6, y + 5]];
  return { type: 'polygon', shape: { points }, style };
}

function latencyOption() {
  const colours = tokens();
  const rows = latencyRows(colours);
  const axis = valueAxis(rows.flatMap(({ latencies }) => latencies), 'log', (nanoseconds) => time(nanoseconds, tick), colours);
  return {
    grid: { left: 8, right: 24, top: 8, bottom: 4, containLabel: true },
    tooltip: tooltip('item', ({ dataIndex }) => tipBody(`${rows[dataIndex].name}, ${cell.direction}s`,
      rows[dataIndex].latencies.map((latency, place) => [rows[dataIndex].colour, PERCENTILES[place][0], time(latency)]))),
    xAxis: axis,
    yAxis: categoryAxis(rows.map(({ name }) => name), colours, { inverse: true, axisLine: { show: false } }),
    series: [{
      type: 'custom',
      data: rows.map(({ latencies }, row) => [row, ...latencies.map((latency) => Math.max(latency, 1))]),
      encode: { y: 0, x: [1, 2, 3, 4] },
      renderItem: (_, api) => {
        const { colour } = rows[api.value(0)];
        const places = [1, 2, 3, 4].map((dimension) => api.coord([api.value(dimension), api.value(0)]));
        const [[from, y], , , [to]] = places;
        return { type: 'group', children: [
          { type: 'line', shape: { x1: from, y1: y, x2: to, y2: y }, style: { stroke: colour, lineWidth: 3, opacity: 0.35 } },
          // The median last, so that it stays visible where percentiles coincide.
          ...places.map(([x], place) => markShape(PERCENTILE_MARKS[place], x, y, colour, colours.surface)).reverse(),
        ] };
      },
    }],
  };
}

/** The key to the marks. */
function percentileKey() {
  const shapes = {
    circle: 'M7 2a5 5 0 1 1 0 10a5 5 0 1 1 0-10', diamond: 'M7 1L13 7L7 13L1 7Z',
    triangle: 'M7 1L13 12L1 12Z', rect: 'M3 3H11V11H3Z',
  };
  return element('p', { class: 'key' }, ...PERCENTILES.map(([name], place) => {
    const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
    svg.setAttribute('viewBox', '0 0 14 14');
    svg.setAttribute('aria-hidden', 'true');
    const path = document.createElementNS('http://www.w3.org/2000/svg', 'path');
    path.setAttribute('d', shapes[PERCENTILE_MARKS[place]]);
    path.setAttribute('class', place === 0 ? 'filled' : 'hollow');
    svg.append(path);
    return element('span', {}, svg, name);
  }));
}

/** Whether anything that is drawn of a panel has latencies at a position. */
function hasLatency(panel, position, direction) {
  const series = [...study.subject_values.map((value) => `value:${value}`), ...model.references.map((target) => `reference:${target}`)];
  return series.some((name) => panel?.at(position, name)?.latency?.[direction]);
}

/** Directions in which the chosen panel and position have figures. */
function directions() {
  return ['read', 'write'].filter((direction) => hasLatency(model.panels[cell.panel], cell.position, direction));
}

function picker(label, options, chosen, change) {
  const select = element('select', { onchange: (event) => change(event.target.value) },
    ...options.map(([value, words]) => element('option', { value, selected: String(value) === String(chosen) }, words)));
  return element('label', {}, element('span', {}, label), select);
}

/** Whether the part has requests that took time: a resync or mkfs by itself has none. */
function partHasLatency() {
  const entries = model.panels.flatMap(({ points }) => [...points.values()]);
  return entries.some(({ latency }) => latency?.read || latency?.write);
}

function showLatency() {
  const container = document.getElementById('latency');
  container.closest('section').hidden = !partHasLatency();
  const panels = shownPanels();
  if (panels.length === 0) {
    document.getElementById('latency-controls').replaceChildren();
    showFigures(container, [element('p', { class: 'empty' }, 'No cells pass the filters.')]);
    return;
  }
  if (!panels.includes(model.panels[cell.panel])) cell.panel = model.panels.indexOf(panels[0]);
  const isDrawn = (position) => ['read', 'write'].some((direction) => hasLatency(model.panels[cell.panel], position, direction));
  if (!model.positions.includes(cell.position)) cell.position = model.positions.find(isDrawn) ?? model.positions[0];
  const possible = directions();
  if (!possible.includes(cell.direction)) cell.direction = possible[0] ?? 'read';
  const change = (field, convert) => (value) => { cell[field] = convert(value); showLatency(); };
  replaceControls(document.getElementById('latency-controls'), [
    picker('Workload', panels.map((panel) => [model.panels.indexOf(panel), panelTitle(panel)]), cell.panel, change('panel', Number)),
    model.axis && model.positions.length > 1 ? picker(factorName(model.axis), model.positions.map((value) => [value, value]), cell.position, change('position', String)) : null,
    possible.length > 1 ? picker('Direction', possible.map((value) => [value, `${value}s`]), cell.direction, change('direction', String)) : null,
    percentileKey(),
  ].filter(Boolean));
  const rows = latencyRows(tokens());
  const title = [panelTitle(model.panels[cell.panel]), model.axis ? `${factorName(model.axis).toLowerCase()} ${cell.position}` : null, `${cell.direction}s`].filter(Boolean).join(', ');
  if (rows.length === 0) {
    showFigures(container, [element('p', { class: 'empty' }, `No latencies for ${title}.`)]);
    return;
  }
  const words = rows.map(({ name, latencies }) => `${name} ${PERCENTILES.map(([percentile], place) => `${percentile} ${time(latencies[place])}`).join(', ')}`);
  const node = figure(title, `Latency percentiles, ${title}. ${words.join('; ')}.`, latencyOption, 'latency');
  node.querySelector('.widen').remove();
  node.querySelector('.chart').style.setProperty('--rows', rows.length);
  showFigures(container, [node]);
}
