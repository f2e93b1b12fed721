// The study's cells, gathered once by part of the plan: panels (one combination of the factors beside subject and axis)
// of positions along the axis of means per subject value and per reference target.

const study = JSON.parse(document.getElementById('study-data').textContent);
const [KEY, TARGET, VALUES, REPLICATE, SEED, SECONDS, READ, WRITE, ERROR, SYNC, MKFS, PACED] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];
const [IOS, BYTES, ERRORS, MEAN, P50, P90, P99, P999] = [0, 1, 2, 3, 4, 5, 6, 7];
const PERCENTILES = [['p50', P50], ['p90', P90], ['p99', P99], ['p99.9', P999]];
const FACTOR_NAMES = { access: 'Access', share: 'Read share', numjobs: 'Threads', iodepth: 'Queue depth', bs: 'Block size', target: 'Target' };
// Facets of which all values are shown at first.
const OPEN_FACETS = ['access', 'share', 'rw', 'target'];
// Student's t for a two-sided 95 % interval, by degrees of freedom from 1.
const STUDENT_T = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179,
  2.16, 2.145, 2.131, 2.12, 2.11, 2.101, 2.093, 2.086, 2.08, 2.074, 2.069, 2.064, 2.06, 2.056, 2.052,
  2.048, 2.045, 2.042];

const subjectFactor = study.factors.indexOf(study.subject);
const partFactor = study.factors.indexOf('part');

/** Value of a factor in a cell, or undefined. */
function factorOf(cell, factor) {
  const number = cell[VALUES][factor];
  return number === undefined || number < 0 ? undefined : study.values[factor][number];
}

/** Words for a factor's name. */
function factorName(factor) {
  return FACTOR_NAMES[factor] ?? factor.replaceAll('_', ' ');
}

/** fio's `rw` and `rwmixread` taken apart into access (sequential, random) and read share in per cent. */
function accessAndShare(rw, mix) {
  const access = rw.startsWith('rand') ? 'random' : 'sequential';
  const kind = rw.replace(/^rand/, '');
  if (kind === 'read') return { access, share: '100' };
  if (kind === 'write') return { access, share: '0' };
  return kind === 'rw' || kind === 'readwrite' ? { access, share: mix ?? '50' } : { access: rw, share: mix };
}

/** Whether jobs of one access and read share are written in several ways, as `read` and `rw` that only reads. */
const tellsRw = (() => {
  const names = new Map();
  const [rw, mix] = ['rw', 'rwmixread'].map((name) => study.factors.indexOf(name));
  for (const cell of study.cells) {
    const name = factorOf(cell, rw);
    if (name === undefined || rw === subjectFactor) continue;
    const kind = JSON.stringify(accessAndShare(name, factorOf(cell, mix)));
    names.set(kind, new Set([...(names.get(kind) ?? []), name]));
  }
  return [...names.values()].some((of) => of.size > 1);
})();

/** Whether the subject is one of several targets, such as threads of the array and of a single drive. */
const tellsTarget = new Set(study.cells.filter((cell) => factorOf(cell, subjectFactor) !== undefined)
  .map((cell) => cell[TARGET])).size > 1;

/** The factors of a cell that are neither subject nor axis, as facets in the order they are shown. */
function facetsOf(cell, axis) {
  const facets = {};
  const value = (name) => factorOf(cell, study.factors.indexOf(name));
  const rw = value('rw');
  if (rw !== undefined) Object.assign(facets, accessAndShare(rw, value('rwmixread')));
  if (tellsRw) facets.rw = rw;
  if (tellsTarget) facets.target = study.targets[cell[TARGET]];
  study.factors.forEach((name, factor) => {
    if ([subjectFactor, partFactor, axis].includes(factor) || name === 'rw' || (name === 'rwmixread' && rw)) return;
    facets[name] = factorOf(cell, factor);
  });
  return facets;
}

/** Whether a cell is of a value of the subject, not of a reference. */
const hasSubject = (cell) => factorOf(cell, subjectFactor) !== undefined;

/** A factor's values among these cells. */
function valuesAmong(cells, factor) {
  const numbers = new Set(cells.map((cell) => cell[VALUES][factor]));
  return study.values[factor].filter((_, number) => numbers.has(number));
}

/** The factor along the horizontal axis: block size where it varies, else the quantity with most values. Beside a recovery
 *  it is the load. Where nothing else is compared, it may be one whose values are names. */
function chooseAxis(cells) {
  const values = study.factors.map((_, factor) => valuesAmong(cells, factor));
  const usual = study.factors.indexOf(study.is_trade_off ? 'iodepth' : 'bs');
  const varying = study.factors.map((_, factor) => factor)
    .filter((factor) => factor !== subjectFactor && values[factor].length > 1);
  if (varying.includes(usual)) return usual;
  const others = varying.filter((factor) => !['rw', 'rwmixread', 'part'].includes(study.factors[factor]));
  others.sort((a, b) => values[b].length - values[a].length);
  const isQuantity = (factor) => values[factor].every((value) => !Number.isNaN(quantity(value)));
  return others.find(isQuantity) ?? (cells.some(hasSubject) ? -1 : others[0] ?? -1);
}

/** Mean and 95 % interval of the mean; no interval from fewer than two. */
function summary(numbers) {
  const count = numbers.length;
  const mean = numbers.reduce((sum, number) => sum + number, 0) / count;
  if (count < 2) return { count, mean };
  const variance = numbers.reduce((sum, number) => sum + (number - mean) ** 2, 0) / (count - 1);
  const half = (STUDENT_T[count - 2] ?? 1.96) * Math.sqrt(variance / count);
  return { count, mean, low: mean - half, high: mean + half };
}

/** Whether a cell is of the array's own work, a resync or recovery without a job: its rate stands for throughput. */
const isOwnWork = (cell) => cell[SYNC] !== null && factorOf(cell, study.factors.indexOf('rw')) === undefined;

/** Whether a cell made a file system: it is judged by its seconds, and less is better. */
const isMkfs = (cell) => cell[MKFS];

/** Whether a cell replayed a trace at a pace of its own: it is judged by its requests' mean latency, and less is better. */
const isPaced = (cell) => cell[PACED];

/** What a cell is judged by, in its unit. */
function judgedFigure(cell) {
  const total = (of) => (cell[READ] ? of(cell[READ]) : 0) + (cell[WRITE] ? of(cell[WRITE]) : 0);
  if (isMkfs(cell)) return cell[SECONDS];
  if (isPaced(cell)) return total((direction) => direction[IOS] * direction[MEAN]) / total((direction) => direction[IOS]) / 1e6;
  return (isOwnWork(cell) ? cell[SYNC] * 1024 : total((direction) => direction[BYTES]) / cell[SECONDS]) / 1e6;
}

function judgedUnit(cell) {
  if (isMkfs(cell)) return 's';
  return isPaced(cell) ? 'ms' : 'MB/s';
}

/** Means of the replicates of one point: MB/s (seconds of mkfs, milliseconds of paced traces), I/Os per second, latency percentiles in nanoseconds. */
function point(cells) {
  const good = cells.filter((cell) => cell[ERROR] === null && cell[SECONDS] > 0);
  if (good.length === 0) return { failed: cells.length, error: cells[0][ERROR] };
  const total = (cell, field) => (cell[READ]?.[field] ?? 0) + (cell[WRITE]?.[field] ?? 0);
  const latency = (direction) => {
    const withIos = good.filter((cell) => cell[direction]?.[IOS] > 0 && !isMkfs(cell));
    return withIos.length === 0 ? null : PERCENTILES.map(([, field]) =>
      withIos.reduce((sum, cell) => sum + cell[direction][field], 0) / withIos.length);
  };
  return {
    ...summary(good.map(judgedFigure)),
    unit: judgedUnit(good[0]),
    iops: summary(good.map((cell) => total(cell, IOS) / cell[SECONDS])).mean,
    sync: summary(good.map((cell) => cell[SYNC] ?? NaN)).mean,
    p99: summary(good.map((cell) => Math.max(cell[READ]?.[P99] ?? 0, cell[WRITE]?.[P99] ?? 0))).mean,
    errors: good.reduce((sum, cell) => sum + total(cell, ERRORS), 0),
    latency: { read: latency(READ), write: latency(WRITE) },
    failed: cells.length - good.length,
  };
}

const FACET_ORDER = {
  access: ['sequential', 'random'],
  share: ['100', '50', '0'],
};

/** Orders a facet's values: known orders first, then by quantity. */
function facetOrder(id, values) {
  const known = FACET_ORDER[id];
  if (id === 'share') return [...values].sort((a, b) => quantity(b) - quantity(a));
  return known ? [...values].sort((a, b) => known.indexOf(a) - known.indexOf(b)) : [...values].sort(byQuantity);
}

/** A facet's value in words. */
function facetWords(id, value) {
  if (value === undefined) return `no ${factorName(id).toLowerCase()}`;
  if (id === 'access') return value;
  if (id === 'share') return value === '100' ? 'reads' : value === '0' ? 'writes' : `${value} % reads`;
  if (id === 'numjobs') return value === '1' ? '1 thread' : `${value} threads`;
  if (id === 'target') return referenceName(value);
  return `${factorName(id).toLowerCase()} ${value}`;
}

/** A target's name, e.g. `single drive`. */
function referenceName(target) {
  return target === 'drive' ? 'single drive' : target;
}

/** Whether the kind of access alone tells a facet's value, as a part of a plan may fix the block size for one. */
function isImplied(id, facets, panels) {
  const access = facets.find((facet) => facet.id === 'access');
  if (!access || access.values.length < 2 || id === 'access' || id === 'share') return false;
  const pairs = new Set(panels.map(({ facets: of }) => JSON.stringify([of.access, of[id] ?? null])));
  return facets.find((facet) => facet.id === id).values.length > 1 && pairs.size === access.values.length;
}

/** What the kinds of access imply, in words. */
function impliedWords(implied, panels) {
  if (implied.length === 0) return [];
  const words = panels.map(({ facets }) => `${facets.access[0].toUpperCase()}${facets.access.slice(1)}: ${implied.map(({ id }) => facetWords(id, facets[id])).join(', ')}`);
  return [...new Set(words)];
}

/** The panels of a part's cells, along its axis. */
function gather(name, cells) {
  const axis = chooseAxis(cells);
  const panels = new Map();
  for (const cell of cells) {
    const facets = facetsOf(cell, axis);
    const id = JSON.stringify(Object.entries(facets).map(([facet, value]) => [facet, value ?? null]));
    if (!panels.has(id)) panels.set(id, { id, facets, groups: new Map() });
    const subject = factorOf(cell, subjectFactor);
    const series = subject === undefined ? `reference:${study.targets[cell[TARGET]]}` : `value:${subject}`;
    const { groups } = panels.get(id);
    const key = JSON.stringify([factorOf(cell, axis) ?? '', series]);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(cell);
  }
  for (const panel of panels.values()) {
    panel.points = new Map([...panel.groups].map(([key, of]) => [key, point(of)]));
    delete panel.groups;
    panel.at = (position, series) => panel.points.get(JSON.stringify([position, series]));
  }
  return { name, cells, axis: axis < 0 ? null : study.factors[axis], panels: [...panels.values()] };
}

/** The targets that the subject is one of. */
const subjectTargets = new Set(study.cells.filter(hasSubject).map((cell) => `reference:${study.targets[cell[TARGET]]}`));

/** Whether a panel's figures are of targets that the subject is none of. */
const isOfOtherTargets = (panel) => !comparesSubject(panel)
  && [...panel.points.keys()].every((key) => !subjectTargets.has(JSON.parse(key)[1]));

/** The facets by whose values there is a subject or none, as there is no bitmap's chunk without a bitmap. */
function decidingFacets(panels) {
  const [withSubject, without] = [true, false].map((compares) => panels.filter((panel) => comparesSubject(panel) === compares));
  const valuesIn = (of, id) => new Set(of.map(({ facets }) => facets[id]));
  const ids = withSubject.length > 0 && without.length > 0 ? Object.keys(withSubject[0].facets) : [];
  return ids.filter((id) => [...valuesIn(withSubject, id)].every((value) => !valuesIn(without, id).has(value)));
}

/** Under which name a panel without values of the subject is a reference in another: null if it is none there. */
function nameAsReference(reference, panel, deciding) {
  const isOther = isOfOtherTargets(reference);
  const differing = Object.entries(reference.facets).filter(([id, value]) => panel.facets[id] !== value
    && !(isOther && (value === undefined || id === 'target')));
  if (isOther) return differing.length === 0 ? JSON.parse([...reference.points.keys()][0])[1] : null;
  const isDecided = differing.length > 0 && differing.every(([id, value]) => value !== undefined && deciding.includes(id));
  return isDecided ? `reference:${differing.map(([id, value]) => facetWords(id, value)).join(', ')}` : null;
}

/** Puts references beside what they are references for: the panels that have all the factors they have, of any part if they are
 *  of another target. */
function joinReferences(parts) {
  for (const part of parts) {
    const deciding = decidingFacets(part.panels.filter((panel) => !isOfOtherTargets(panel)));
    part.panels = part.panels.filter((reference) => {
      if (comparesSubject(reference)) return true;
      const near = isOfOtherTargets(reference) ? parts.filter(({ axis }) => axis === part.axis) : [part];
      const beside = near.flatMap(({ panels }) => panels).filter(comparesSubject)
        .map((panel) => [panel, nameAsReference(reference, panel, deciding)]).filter(([, name]) => name !== null);
      for (const [panel, name] of beside) {
        for (const [key, entry] of reference.points) panel.points.set(JSON.stringify([JSON.parse(key)[0], name]), entry);
      }
      return beside.length === 0;
    });
  }
  return parts.filter(({ panels }) => panels.length > 0);
}

/** A part with what its panels have in common and by what they differ. */
function describe(part) {
  const seen = new Map();
  const places = part.panels.flatMap(({ points }) => [...points.keys()].map((key) => JSON.parse(key)));
  for (const [id, value] of part.panels.flatMap(({ facets }) => Object.entries(facets))) {
    if (!seen.has(id)) seen.set(id, new Set());
    seen.get(id).add(value);
  }
  const facets = [...seen].map(([id, values]) => ({ id, values: facetOrder(id, values) }));
  const first = ['access', 'share', 'numjobs'];
  const rank = (id) => (first.indexOf(id) + first.length + 1) % (first.length + 1);
  facets.sort((a, b) => rank(a.id) - rank(b.id));
  const implied = facets.filter(({ id }) => isImplied(id, facets, part.panels));
  const references = places.map(([, series]) => series).filter((series) => series.startsWith('reference:'));
  return {
    ...part,
    compares: part.panels.some(comparesSubject),
    positions: [...new Set(places.map(([position]) => position))].sort(byQuantity),
    facets: facets.filter((facet) => facet.values.length > 1 && !implied.includes(facet)),
    implied: impliedWords(implied, part.panels),
    fixed: facets.filter((facet) => facet.values.length === 1 && facet.values[0] !== undefined),
    references: [...new Set(references)].map((series) => series.slice('reference:'.length)),
    panels: orderPanels(part.panels, facets),
  };
}

/** The parts of the plan, which do not combine, each with panels, facets and an axis of its own. */
function gatherParts() {
  const cellsOf = new Map();
  for (const cell of study.cells) {
    const name = factorOf(cell, partFactor) ?? '';
    if (!cellsOf.has(name)) cellsOf.set(name, []);
    cellsOf.get(name).push(cell);
  }
  return joinReferences([...cellsOf].map(([name, cells]) => gather(name, cells))).map(describe);
}

/** Whether a panel has cells of the subject's values. */
function comparesSubject(panel) {
  return [...panel.points.keys()].some((key) => JSON.parse(key)[1].startsWith('value:'));
}

/** Panels by threads, then access, then read share: what is beside each other differs in the last. */
function orderPanels(panels, facets) {
  const order = facets.filter(({ id }) => id !== 'access' && id !== 'share').reverse()
    .concat(facets.filter(({ id }) => id === 'access'), facets.filter(({ id }) => id === 'share'));
  const rank = (panel) => order.map(({ id, values }) => values.indexOf(panel.facets[id]));
  return panels.map((panel) => [rank(panel), panel]).sort(([a], [b]) => {
    const differing = a.findIndex((place, index) => place !== b[index]);
    return differing < 0 ? 0 : a[differing] - b[differing];
  }).map(([, panel]) => panel);
}

const models = gatherParts();
/** The part that is shown: at first one that compares values of the subject. */
let model = models.find(({ compares }) => compares) ?? models[0];

/** What values are compared by, of a point: its throughput, or the inverse of mkfs's seconds. */
function speedOf(entry) {
  if (entry?.mean === undefined) return NaN;
  return entry.unit === 'MB/s' ? entry.mean : 1 / entry.mean;
}

/** The unit of a panel's figures. */
function unitOf(panel) {
  return [...panel.points.values()].find(({ unit }) => unit)?.unit ?? 'MB/s';
}

/** A panel's title, from the facets that vary in this study. */
function panelTitle(panel) {
  const facets = model.facets.length > 0 ? model.facets : model.fixed;
  const words = facets.map(({ id }) => facetWords(id, panel.facets[id]));
  const joined = 'access' in panel.facets && facets[0]?.id === 'access' && facets[1]?.id === 'share'
    ? [`${words[0]} ${words[1]}`, ...words.slice(2)] : words;
  const title = joined.join(', ') || 'all cells';
  return title[0].toUpperCase() + title.slice(1);
}
