// Texts for numbers, and elements whose text is never read as markup.

const SIZE_UNITS = { '': 1, k: 2 ** 10, m: 2 ** 20, g: 2 ** 30, t: 2 ** 40 };

/** A factor's value as a number, for ordering: `64k` → 65536; NaN where it is a name. */
function quantity(value) {
  const parts = /^(\d+(?:\.\d+)?)([kmgt]?)(?:i?b)?$/i.exec(value);
  return parts ? Number(parts[1]) * SIZE_UNITS[parts[2].toLowerCase()] : NaN;
}

/** Orders quantities by size, and names as they are. */
function byQuantity(a, b) {
  const [left, right] = [quantity(a), quantity(b)];
  return Number.isNaN(left) || Number.isNaN(right) ? 0 : left - right;
}

/** Three significant digits without an exponent. */
function digits(number) {
  if (!Number.isFinite(number)) return '–';
  const size = Math.abs(number);
  const decimals = size >= 100 || size === 0 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3;
  return number.toFixed(decimals).replace(/\B(?=(\d{3})+(?!\d)(?!.*\.))/g, '\u202f');
}

/** A number for an axis: as short as it can be. */
function tick(number) {
  return number >= 1000 ? `${Number((number / 1000).toPrecision(3))}k` : String(Number(number.toPrecision(3)));
}

/** Nanoseconds in the unit that suits them. */
function time(nanoseconds, write = digits) {
  if (!Number.isFinite(nanoseconds)) return '–';
  if (nanoseconds < 1e3) return `${write(nanoseconds)} ns`;
  if (nanoseconds < 1e6) return `${write(nanoseconds / 1e3)} µs`;
  return nanoseconds < 1e9 ? `${write(nanoseconds / 1e6)} ms` : `${write(nanoseconds / 1e9)} s`;
}

function percent(share) {
  return Number.isFinite(share) ? `${(share * 100).toFixed(1)} %` : '–';
}

/** An element with attributes (`class`, `aria-…`, `onclick`, …) and children; text stays text. */
function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith('on')) node.addEventListener(key.slice(2), value);
    else if (value === true) node.setAttribute(key, '');
    else if (value !== false && value != null) node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child != null));
  return node;
}

/** What a control is called: what a list's label says, or the words on a button with those of its group. */
function controlName(control) {
  const group = control.closest('[aria-label]')?.getAttribute('aria-label') ?? '';
  return control.closest('label')?.querySelector('span').textContent ?? `${group}: ${control.textContent}`;
}

/** Replaces controls. Who was at one of them with the keyboard is at its successor, or else at the first. */
function replaceControls(container, controls) {
  const focused = container.contains(document.activeElement) ? controlName(document.activeElement) : null;
  container.replaceChildren(...controls);
  if (focused === null) return;
  const all = [...container.querySelectorAll('select, button')];
  (all.find((control) => controlName(control) === focused) ?? all[0])?.focus({ preventScroll: true });
}
