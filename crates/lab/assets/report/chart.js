// What the charts share: the reader's choices, colours and marks by subject value, axes, tooltips, and the
// queue that draws one chart per frame so that a large study does not freeze the page.

const reducedMotion = matchMedia('(prefers-reduced-motion: reduce)').matches;
const choices = { facets: new Map(), hidden: new Set(), scale: 'log', shared: false };

/** Marks by subject value, so that lines are told apart without colour. */
const MARKS = ['circle', 'rect', 'triangle', 'diamond'];
const markOf = (index) => ({ symbol: MARKS[index % MARKS.length], hollow: index % (2 * MARKS.length) >= MARKS.length });

const dark = () => document.documentElement.dataset.theme === 'dark'
  || (document.documentElement.dataset.theme !== 'light' && matchMedia('(prefers-color-scheme: dark)').matches);
const colourOf = (index) => (dark() ? study.colours_dark : study.colours_light)[index];

/** The page's colours, read from its style. */
function tokens() {
  const style = getComputedStyle(document.documentElement);
  const names = ['ink', 'muted', 'rule', 'grid', 'surface', 'reference', 'heat-0', 'heat-1', 'heat-2', 'heat-3', 'heat-4'];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

/** The subject values the reader has not hidden, with their places among all of them. */
function shownValues() {
  return study.subject_values.map((value, index) => ({ value, index })).filter(({ value }) => !choices.hidden.has(value));
}

/** The panels that pass the chosen filters. */
function shownPanels() {
  return model.panels.filter((panel) => [...choices.facets].every(([id, value]) => value === null || panel.facets[id] === value));
}

const provenance = () => element('span', { class: `badge ${study.simulated ? 'simulated' : 'measured'}` },
  study.simulated ? 'simulated' : `measured on ${study.target}`);

/** A logarithmic range a little wider than the numbers, with two to seven round ticks in it. */
function logRange(low, high) {
  const margin = Math.max((high / low) ** 0.05, 1.02);
  const [min, max] = [low / margin, high * margin];
  const round = (steps) => {
    const ticks = [];
    for (let power = Math.floor(Math.log10(min)); power <= Math.log10(max); power += 1) {
      ticks.push(...steps.map((step) => Number((step * 10 ** power).toPrecision(6))));
    }
    return ticks.filter((value) => value >= min && value <= max);
  };
  const fine = Array.from({ length: 90 }, (_, step) => 1 + step / 10);
  const sets = [[1], [1, 3], [1, 2, 5], [1, 1.5, 2, 3, 4, 5, 6, 8], fine].map(round);
  const fitting = sets.filter(({ length }) => length >= 2 && length <= 7);
  return { min, max, ticks: fitting.at(-1) ?? sets.find(({ length }) => length > 7)?.filter((_, place, all) => place % Math.ceil(all.length / 7) === 0) ?? [min, max] };
}

/** The end of an axis from zero that holds the number, and a round step to it. */
function linearRange(high) {
  const rough = high / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const interval = [1, 2, 2.5, 5, 10].map((step) => step * power).find((step) => step >= rough);
  return { max: Math.ceil(high / interval) * interval, interval };
}

/** A value axis over these numbers, logarithmic or from zero. One that is `shared` ends where the others do. */
function valueAxis(numbers, scale, write, colours, shared = false) {
  const usable = numbers.filter((number) => Number.isFinite(number) && (scale !== 'log' || number > 0));
  const common = {
    axisLine: { show: false },
    axisTick: { show: false },
    axisLabel: { color: colours.muted, fontSize: 11, fontFamily: FONT, formatter: write, hideOverlap: true },
    splitLine: { lineStyle: { color: colours.grid, width: 1 } },
    minorTick: { show: false },
  };
  const high = Math.max(0, ...usable);
  if (scale !== 'log' || high === 0) return { type: 'value', min: 0, splitNumber: 4, ...common, ...(shared && high > 0 ? linearRange(high) : {}) };
  const { min, max, ticks } = logRange(Math.min(...usable), high);
  common.axisLabel.customValues = ticks;
  common.splitLine.customValues = ticks;
  return { type: 'log', min, max, ...common, axisTick: { show: false, customValues: ticks } };
}

const FONT = '"Plex Sans", ui-sans-serif, system-ui, sans-serif';
const MONO = '"Plex Mono", ui-monospace, monospace';

/** A category axis in the fixed-width face of factor values. */
function categoryAxis(data, colours, more = {}) {
  return {
    type: 'category',
    data,
    axisLine: { lineStyle: { color: colours.rule } },
    axisTick: { show: false },
    axisLabel: { color: colours.muted, fontSize: 11, fontFamily: MONO, hideOverlap: true, margin: 8 },
    ...more,
  };
}

/** A tooltip whose content is built of elements. */
function tooltip(trigger, formatter) {
  return {
    trigger,
    confine: true,
    transitionDuration: reducedMotion ? 0 : 0.15,
    className: 'tip',
    backgroundColor: 'transparent',
    borderWidth: 0,
    padding: 0,
    extraCssText: 'box-shadow:none',
    axisPointer: { type: 'line', lineStyle: { color: tokens().muted, width: 1, type: [2, 3] } },
    formatter,
  };
}

/** A tooltip's body: heading and rows of [colour, name, figure, detail]. */
function tipBody(heading, rows, foot) {
  return element('div', { class: 'tip-body' }, element('p', {}, heading),
    element('table', {}, ...rows.map(([colour, name, figure, detail]) => {
      const swatch = element('i');
      swatch.style.background = colour;
      return element('tr', {}, element('th', {}, swatch, name), element('td', {}, figure), element('td', { class: 'detail' }, detail ?? ''));
    })),
    foot ? element('p', { class: 'tip-foot' }, foot) : null);
}

const charts = new Set();
let queue = [];
let drawing = 0;

/** A figure with its title, badge and chart; `option(width)` gives what to draw. */
function figure(title, description, option, className = '') {
  const canvas = element('div', { class: `chart ${className}`, role: 'img', 'aria-label': description });
  const widen = element('button', { type: 'button', class: 'quiet widen', 'aria-pressed': 'false', onclick: () => {
    const wide = node.classList.toggle('widened');
    widen.setAttribute('aria-pressed', String(wide));
    widen.title = wide ? 'Reduce' : 'Enlarge';
  }, title: 'Enlarge', 'aria-label': `Enlarge ${title}` }, element('i', { 'aria-hidden': 'true' }));
  const node = element('figure', { class: 'panel' },
    element('figcaption', {}, element('h4', {}, title), provenance(), widen), canvas);
  const chart = { canvas, option, instance: null, width: 0 };
  charts.add(chart);
  queue.push(chart);
  return node;
}

function draw(chart) {
  if (!chart.canvas.isConnected) return;
  chart.instance ??= echarts.init(chart.canvas, null, { renderer: 'svg' });
  chart.width = chart.canvas.clientWidth;
  chart.instance.setOption({ animation: false, ...chart.option(chart.width) }, true);
  chart.canvas.dataset.drawn = 'true';
}

/** Draws what waits, one chart per frame; the page says when all are there. */
function drawQueue() {
  const chart = queue.shift();
  document.documentElement.dataset.charts = chart ? 'drawing' : 'ready';
  if (!chart) {
    drawing = 0;
    return;
  }
  draw(chart);
  drawing = setTimeout(drawQueue, 0);
}

function scheduleDrawing() {
  if (drawing === 0) drawing = setTimeout(drawQueue, 0);
  document.documentElement.dataset.charts = 'drawing';
}

/** Replaces the figures in a container. */
function showFigures(container, figures) {
  for (const chart of charts) {
    if (!container.contains(chart.canvas)) continue;
    sizes.unobserve(chart.canvas);
    chart.instance?.dispose();
    charts.delete(chart);
    queue = queue.filter((waiting) => waiting !== chart);
  }
  container.replaceChildren(...figures);
  for (const canvas of container.querySelectorAll('.chart')) sizes.observe(canvas);
  scheduleDrawing();
}

/** Draws all charts anew, after a change of theme. */
function redrawAll() {
  queue = [...charts];
  scheduleDrawing();
}

const sizes = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const chart = [...charts].find(({ canvas }) => canvas === target);
    if (!chart?.instance || (chart.width === target.clientWidth && chart.instance.getHeight() === target.clientHeight)) continue;
    chart.instance.resize();
    if (!queue.includes(chart)) queue.push(chart);
    scheduleDrawing();
  }
});
