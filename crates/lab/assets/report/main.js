// Controls, and what redraws when they change.

const PANELS_MAX = 24;
const PANELS_FEW = 6;

/** A group of buttons of which one is pressed. */
function segments(label, options, chosen, change) {
  const group = element('div', { class: 'segments', role: 'group', 'aria-label': label });
  group.append(...options.map(([value, words]) => element('button', {
    type: 'button', 'aria-pressed': String(value === chosen), onclick: (event) => {
      for (const button of group.children) button.setAttribute('aria-pressed', String(button === event.currentTarget));
      change(value);
    },
  }, words)));
  return element('div', { class: 'control' }, element('span', { 'aria-hidden': 'true' }, label), group);
}

/** How to show of each facet that all its values pass. */
const widened = new Map();

/** Sets one filter. What it leaves nothing of, because not all combine, the other filters let pass. */
function filter(id, value) {
  choices.facets.set(id, value);
  if (shownPanels().length === 0) {
    for (const other of choices.facets.keys()) {
      if (other === id) continue;
      choices.facets.set(other, null);
      widened.get(other)();
    }
  }
  showFigureGroups();
}

/** A filter for one facet; few values are buttons, many a list. */
function facetControl({ id, values }) {
  const change = (value) => filter(id, value);
  const control = facetChoice(id, values, change);
  widened.set(id, () => {
    control.querySelectorAll('button').forEach((button, index) => button.setAttribute('aria-pressed', String(index === 0)));
    for (const select of control.querySelectorAll('select')) select.selectedIndex = 0;
  });
  return control;
}

function facetChoice(id, values, change) {
  const words = (value) => (id === 'share' ? `${value ?? '–'} %` : value ?? 'none');
  if (values.length <= 5) return segments(factorName(id), [[null, 'All'], ...values.map((value) => [value, words(value)])], choices.facets.get(id), change);
  // By their places: 'none' is a value like others, and 'All' is none.
  const options = [['', 'All'], ...values.map((value, place) => [String(place), words(value)])];
  const place = values.indexOf(choices.facets.get(id));
  return element('div', { class: 'control' }, picker(factorName(id), options, place < 0 ? '' : String(place), (chosen) => change(chosen === '' ? null : values[Number(chosen)])));
}

/** The legend of a part without values of the subject: its targets. */
function ownLegend() {
  const chips = model.references.map((target, index) => {
    const chip = element('span', { class: 'chip reference' }, element('i', { class: `swatch ${markOf(index).symbol}` }), referenceName(target));
    chip.style.setProperty('--own', `var(--value-${index})`);
    return chip;
  });
  return element('div', { class: 'control legend' }, element('span', {}, 'Target'), element('div', { class: 'chips' }, ...chips));
}

/** The legend: every subject value with its colour and mark; pressing one hides or shows it. */
function legend() {
  if (!model.compares) return ownLegend();
  const chips = study.subject_values.map((value, index) => {
    const chip = element('button', { type: 'button', class: 'chip', 'aria-pressed': 'true', title: 'Show or hide', onclick: () => {
      if (!choices.hidden.delete(value)) choices.hidden.add(value);
      if (choices.hidden.size === study.subject_values.length) choices.hidden.clear();
      for (const [place, other] of chips.entries()) other.setAttribute('aria-pressed', String(!choices.hidden.has(study.subject_values[place])));
      showFigureGroups();
    } }, element('i', { class: `swatch ${markOf(index).symbol}${markOf(index).hollow ? ' hollow' : ''}` }), value);
    chip.style.setProperty('--own', `var(--value-${index})`);
    return chip;
  });
  const references = model.references.map((target) => element('span', { class: 'chip reference' }, element('i', { class: 'dash' }), referenceName(target)));
  return element('div', { class: 'control legend' }, element('span', {}, factorName(study.subject)),
    element('div', { class: 'chips', role: 'group', 'aria-label': `${factorName(study.subject)}: values shown` }, ...chips, ...references));
}

/** The parts of the plan, of which one is shown. */
function partControl() {
  if (models.length < 2) return null;
  const options = models.map(({ name }, place) => [String(place), name]);
  return element('div', { class: 'control' }, picker('Part of the plan', options, String(models.indexOf(model)), (place) => showPart(models[Number(place)])));
}

/** Shows a part of the plan with controls of its own. */
function showPart(part) {
  model = part;
  showControls();
  writeNotes();
  showFigureGroups();
}

function showControls() {
  // One value of the facets beside the open ones at first, so that panels differ in what is titled: those of a panel
  // that compares the subject. Few panels are all shown.
  const { facets } = model.panels.find(comparesSubject) ?? model.panels[0];
  const isOpen = (id) => OPEN_FACETS.includes(id) || model.panels.length <= PANELS_FEW;
  choices.facets = new Map(model.facets.map(({ id }) => [id, isOpen(id) ? null : facets[id] ?? null]));
  widened.clear();
  replaceControls(document.getElementById('controls'), [
    partControl(),
    model.compares || model.references.length > 1 ? legend() : null,
    ...model.facets.map(facetControl),
    segments('Scale', [['log', 'Log'], ['linear', 'Linear']], choices.scale, (scale) => { choices.scale = scale; showThroughput(); }),
    segments('Range', [[false, 'Own'], [true, 'Common']], choices.shared, (shared) => { choices.shared = shared; showThroughput(); }),
  ].filter(Boolean));
}

function panelsOrNone(container, panels, figures) {
  const shown = panels.slice(0, PANELS_MAX);
  const nodes = shown.length > 0 ? figures(shown) : [element('p', { class: 'empty' }, 'No cells pass the filters.')];
  if (panels.length > shown.length) nodes.push(element('p', { class: 'empty' }, `${panels.length - shown.length} more panels pass the filters; narrow them to see these.`));
  showFigures(document.getElementById(container), nodes);
}

function showThroughput() {
  panelsOrNone('throughput', shownPanels(), throughputFigures);
}

function showFigureGroups() {
  if (study.is_trade_off) panelsOrNone('tradeoff', shownPanels(), tradeOffFigures);
  showThroughput();
  document.getElementById('relative').closest('section').hidden = !model.compares;
  panelsOrNone('relative', model.compares ? shownPanels() : [], relativeFigures);
  showLatency();
}

function writeNotes() {
  const { cells } = model;
  const tradeOff = document.getElementById('tradeoff-note');
  tradeOff?.querySelector('span')?.remove();
  tradeOff?.append(element('span', {}, tradeOffKey()));
  const replicates = Math.max(...cells.map((row) => row[REPLICATE] + 1));
  const interval = replicates > 1 ? `Marks are means over up to ${replicates} replicates, whiskers their 95 % interval.` : 'One replicate, so there are no intervals.';
  const fixed = model.fixed.map(({ id, values }) => facetWords(id, values[0])).join(', ');
  const reference = model.compares && model.references.length > 0 ? ` Dashed: ${model.references.map(referenceName).join(', ')}.` : '';
  const isAllOwnWork = cells.every(isOwnWork);
  const isAll = (of) => cells.some(of) && cells.every((cell) => of(cell) || cell[ERROR] !== null);
  const isAllMkfs = isAll(isMkfs);
  const isAllPaced = isAll(isPaced);
  const title = [[isAllOwnWork, 'Rate of resync or recovery'], [isAllMkfs, 'Time of mkfs'], [isAllPaced, 'Mean latency at the trace’s pace'], [true, 'Throughput']];
  document.getElementById('throughput-title').textContent = title.find(([holds]) => holds)[1];
  const whose = isAllOwnWork ? 'of each member.' : 'reads and writes together.';
  const ownWork = !isAllOwnWork && cells.some(isOwnWork) ? ' Without a job: the rate of resync or recovery on each member.' : '';
  const mkfs = !isAllMkfs && cells.some(isMkfs) ? ' Of mkfs: seconds, less is better.' : '';
  const paced = !isAllPaced && cells.some(isPaced) ? ' Of paced traces: mean latency in ms, less is better.' : '';
  const time = isAllMkfs ? 'Seconds' : 'Mean latency in ms';
  const axis = model.axis ? ` by ${factorName(model.axis).toLowerCase()}` : '';
  document.getElementById('throughput-note').textContent = `${isAllMkfs || isAllPaced ? `${time}${axis}, less is better.` : `MB/s (1 MB = 1,000,000 bytes)${axis}, ${whose}`}${ownWork}${mkfs}${paced} ${interval}${reference}${fixed ? ` The same in all: ${fixed}.` : ''}${model.implied.map((words) => ` ${words}.`).join('')}`;
  document.getElementById('relative-note').replaceChildren(
    isAllMkfs || isAllPaced ? `Least ${isAllMkfs ? 'seconds' : 'mean latency'} of any ${factorName(study.subject)} in per cent of each one's, in the same cell. Blank: no figures. `
      : `${isAllOwnWork ? 'Rate' : 'Throughput'} of each ${factorName(study.subject)} in per cent of the best one of the same cell. Blank: no figures. `,
    element('span', { class: 'ramp' }, element('span', {}, percent(lowestShare).replace('.0', '')), element('i', { 'aria-hidden': 'true' }), element('span', {}, '100 %')));
  document.getElementById('latency-note').textContent = 'Completion latency for one workload, on a logarithmic axis; with several replicates, the mean of their percentiles.';
}

function themeButton() {
  const button = document.getElementById('theme');
  const label = () => { button.textContent = dark() ? 'Light theme' : 'Dark theme'; };
  button.hidden = false;
  button.addEventListener('click', () => {
    document.documentElement.dataset.theme = dark() ? 'light' : 'dark';
    try { localStorage.setItem('stripewise-theme', document.documentElement.dataset.theme); } catch { /* Not kept, then. */ }
    label();
    redrawAll();
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { label(); redrawAll(); });
  label();
}

function copyButtons() {
  for (const button of document.querySelectorAll('.copy')) {
    const source = document.getElementById(button.dataset.copy);
    button.hidden = false;
    button.addEventListener('click', async () => {
      try {
        await navigator.clipboard.writeText(source.textContent);
        button.textContent = 'Copied';
      } catch {
        getSelection().selectAllChildren(source);
        button.textContent = 'Selected: press Ctrl-C';
      }
      setTimeout(() => { button.textContent = 'Copy'; }, 2000);
    });
  }
}

themeButton();
copyButtons();
showCells();
if (document.getElementById('controls')) {
  showControls();
  writeNotes();
  document.fonts.ready.then(showFigureGroups);
}
