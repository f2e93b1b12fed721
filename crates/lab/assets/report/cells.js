// The table of cells: every run with its key in the store, searched and shown a page at a time.

const PAGE = 50;
const COLUMNS = [
  ['Target', (cell) => study.targets[cell[TARGET]]],
  ...study.factors.map((name, factor) => [name, (cell) => factorOf(cell, factor) ?? '–']),
  ['Replicate', (cell) => String(cell[REPLICATE])],
  ['MB/s', (cell) => rate(cell, BYTES, 1e6), 'number'],
  ...(study.cells.some((cell) => cell[SYNC] !== null) ? [['Sync KiB/s', (cell) => (cell[SYNC] === null ? '–' : digits(cell[SYNC])), 'number']] : []),
  ['I/Os per s', (cell) => rate(cell, IOS, 1), 'number'],
  ['Read p50', (cell) => time(cell[READ]?.[P50]), 'number'],
  ['Read p99', (cell) => time(cell[READ]?.[P99]), 'number'],
  ['Write p50', (cell) => time(cell[WRITE]?.[P50]), 'number'],
  ['Write p99', (cell) => time(cell[WRITE]?.[P99]), 'number'],
  ['I/O errors', (cell) => String((cell[READ]?.[ERRORS] ?? 0) + (cell[WRITE]?.[ERRORS] ?? 0)), 'number'],
  ['Seconds', (cell) => digits(cell[SECONDS]), 'number'],
  ['Seed', (cell) => cell[SEED]],
  ['Key', (cell) => cell[KEY]],
];

function rate(cell, field, unit) {
  // What mkfs writes is not what it is judged by.
  if (cell[ERROR] !== null || !(cell[SECONDS] > 0) || isMkfs(cell)) return '–';
  return digits(((cell[READ]?.[field] ?? 0) + (cell[WRITE]?.[field] ?? 0)) / cell[SECONDS] / unit);
}

/** A cell's words for the search, `factor=value` among them. */
function searchText(cell) {
  const factors = study.factors.map((name, factor) => `${name}=${factorOf(cell, factor) ?? ''}`);
  return [study.targets[cell[TARGET]], ...factors, cell[SEED], cell[KEY], cell[ERROR] ?? ''].join(' ').toLowerCase();
}

function cellRow(entry) {
  const failed = entry[ERROR] !== null;
  const row = element('tr', { class: failed ? 'failed' : '' }, ...COLUMNS.map(([, write, kind]) => element('td', { class: kind ?? '' }, write(entry))));
  if (!failed) return [row];
  return [row, element('tr', { class: 'failed why' }, element('td', { colspan: COLUMNS.length }, `No figures: ${entry[ERROR]}`))];
}

function showCells() {
  const texts = study.cells.map(searchText);
  let found = study.cells;
  let page = 0;
  const body = element('tbody');
  const status = element('p', { class: 'status', role: 'status' });
  const back = element('button', { type: 'button', class: 'quiet', onclick: () => show(page - 1) }, 'Previous');
  const next = element('button', { type: 'button', class: 'quiet', onclick: () => show(page + 1) }, 'Next');
  const show = (wanted) => {
    const last = Math.max(Math.ceil(found.length / PAGE) - 1, 0);
    page = Math.min(Math.max(wanted, 0), last);
    body.replaceChildren(...found.slice(page * PAGE, (page + 1) * PAGE).flatMap(cellRow));
    back.disabled = page === 0;
    next.disabled = page === last;
    status.textContent = found.length === 0 ? 'No cell matches.'
      : `${page * PAGE + 1} to ${Math.min((page + 1) * PAGE, found.length)} of ${found.length}`;
  };
  const search = element('input', { type: 'search', placeholder: 'e.g. bs=4k rw=randrw', oninput: () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    found = study.cells.filter((_, index) => words.every((word) => (word.includes('=') ? ` ${texts[index]} `.includes(` ${word} `) : texts[index].includes(word))));
    show(0);
  } });
  document.getElementById('cells-table').replaceChildren(
    element('div', { class: 'cells-bar' }, element('label', {}, element('span', {}, 'Search'), search), status, back, next),
    element('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-labelledby': 'cells-title' },
      element('table', { class: 'cells' }, element('thead', {}, element('tr', {}, ...COLUMNS.map(([name, , kind]) => element('th', { scope: 'col', class: kind ?? '' }, name)))), body)),
  );
  show(0);
}
