// Checks a rendered report as a reader meets it: run.sh REPORT.html [SCREENSHOT_FOLDER]
import { mkdirSync } from 'node:fs';
import { basename, join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { close, settled, withPage } from './browser.mjs';

const report = resolve(process.argv[2]);
const url = pathToFileURL(report).href;
const pictures = process.argv[3];
let passed = 0;
let failed = 0;

function check(name, holds, detail = '') {
  if (holds) passed += 1;
  else failed += 1;
  console.log(`${holds ? 'ok  ' : 'FAIL'} ${name}${!holds && detail !== '' ? `: ${JSON.stringify(detail)}` : ''}`);
}

/** Screenshots, one window's height at a time. */
async function picture(page, name) {
  if (!pictures) return;
  mkdirSync(pictures, { recursive: true });
  const height = await page.evaluate(() => document.documentElement.scrollHeight);
  for (let top = 0, part = 0; top < height; top += 900, part += 1) {
    await page.evaluate((y) => scrollTo(0, y), top);
    await page.screenshot({ path: join(pictures, `${basename(report, '.html')}-${name}-${String(part).padStart(2, '0')}.png`) });
  }
  await page.evaluate(() => scrollTo(0, 0));
}

/** Marks drawn in each chart of a container: shapes that are filled or stroked in a colour. */
const drawn = (page, container) => page.$$eval(`#${container} .chart`, (charts) => charts.map((chart) => (
  chart.querySelectorAll('svg path[stroke], svg path[fill], svg polygon, svg rect[rx], svg circle').length)));

const markup = (page, container) => page.$eval(`#${container}`, (node) => node.innerHTML);

/** Texts of a chart that reach beyond its edges. */
const cutTexts = (page) => page.$$eval('.chart', (charts) => charts.flatMap((chart) => {
  const box = chart.getBoundingClientRect();
  return [...chart.querySelectorAll('svg text')].filter((text) => {
    const own = text.getBoundingClientRect();
    return own.left < box.left - 1 || own.right > box.right + 1 || own.top < box.top - 1 || own.bottom > box.bottom + 1;
  }).map((text) => text.textContent);
}));

/** Pairs of texts of one chart that overlap. */
const overlappingTexts = (page) => page.$$eval('.chart', (charts) => charts.flatMap((chart) => {
  const texts = [...chart.querySelectorAll('svg text')].map((text) => [text.textContent, text.getBoundingClientRect()]);
  return texts.flatMap(([name, a], index) => texts.slice(index + 1)
    .filter(([, b]) => a.left + 1 < b.right && b.left + 1 < a.right && a.top + 3 < b.bottom && b.top + 3 < a.bottom)
    .map(([other]) => `${name}/${other}`));
}));

async function checkBasics(page, seen, name) {
  const facts = await page.evaluate(() => ({
    title: document.title,
    badges: document.querySelectorAll('header .badge.simulated, header .badge.measured').length,
    headings: document.querySelectorAll('h1').length,
    width: document.documentElement.scrollWidth,
    window: innerWidth,
    unlabelled: document.querySelectorAll('.chart:not([aria-label])').length,
    figures: document.querySelectorAll('figure').length,
    cutBadges: [...document.querySelectorAll('.badge.simulated')].filter((badge) => badge.scrollWidth > badge.clientWidth).length,
    labelled: [...document.querySelectorAll('figure .badge')].filter((badge) => /^(simulated$|measured on .)/.test(badge.textContent)).length,
    injected: 'injected' in window,
  }));
  check(`${name}: the page's title says simulated or measured`, /simulated|measured/.test(facts.title), facts.title);
  check(`${name}: the header says simulated or measured`, facts.badges === 1, facts.badges);
  check(`${name}: every chart's title says simulated or measured`, facts.figures === facts.labelled, facts);
  check(`${name}: the word simulated is never cut`, facts.cutBadges === 0, facts.cutBadges);
  check(`${name}: one main heading`, facts.headings === 1);
  check(`${name}: no horizontal scroll of the page`, facts.width <= facts.window, facts);
  check(`${name}: every chart has a description`, facts.unlabelled === 0);
  const heading = await page.$eval('h1', (node) => {
    const text = node.textContent;
    node.textContent = 'x'.repeat(300);
    const { scrollWidth } = document.documentElement;
    node.textContent = text;
    return scrollWidth;
  });
  check(`${name}: a long title breaks`, heading <= facts.window, heading);
  const scale = await page.$$eval('.ranking .axis', (nodes) => nodes.map((node) => {
    const [axis, track] = [node, document.querySelector('.ranking .track')].map((of) => of.getBoundingClientRect());
    return [node.checkVisibility(), Math.round(axis.left - track.left), Math.round(axis.right - track.right)];
  }));
  check(`${name}: the ranking's scale stands above its bars`, scale.every(([visible, left, right]) => visible && Math.abs(left) <= 2 && Math.abs(right) <= 2), scale);
  check(`${name}: no text of the study ran as a script`, !facts.injected);
  check(`${name}: nothing fetched but the file`, seen.requests.every((request) => request === url), seen.requests);
}

async function checkCharts(page, name) {
  for (const container of ['throughput', 'relative', 'latency']) {
    const counts = await drawn(page, container);
    const empty = await page.$(`#${container} .empty`);
    check(`${name}: ${container} is drawn, or says why not`, counts.length > 0 ? counts.every((count) => count > 0) : empty !== null, counts);
  }
  const hasLatency = await page.$eval('#study-data', (node) => JSON.parse(node.textContent).cells.some((cell) => cell[8] === null && (cell[6] || cell[7]) && !cell[10]));
  check(`${name}: latencies have a section where there are any`, await page.$eval('#latency-title', (node) => node.checkVisibility()) === hasLatency);
  check(`${name}: no text of a chart is cut`, (await cutTexts(page)).length === 0, await cutTexts(page));
  check(`${name}: no texts of a chart overlap`, (await overlappingTexts(page)).length === 0, await overlappingTexts(page));
}

/** Cells of the array and of a single drive never share a mark; without I/O the rate of resync or recovery is drawn. */
async function checkWhatIsDrawn(page) {
  const { both, rates, mkfs, paced } = await page.$eval('#study-data', (node) => {
    const study = JSON.parse(node.textContent);
    const subject = study.factors.indexOf(study.subject);
    const good = study.cells.filter((cell) => cell[8] === null);
    const touched = new Set(good.filter((cell) => cell[2][subject] >= 0).map((cell) => cell[1]));
    return { both: touched.size > 1, rates: good.length > 0 && good.every((cell) => !cell[6] && !cell[7] && cell[9] > 0), mkfs: good.length > 0 && good.every((cell) => cell[10]), paced: good.length > 0 && good.every((cell) => cell[11]) };
  });
  const titles = await page.$$eval('#throughput figcaption', (nodes) => nodes.map((node) => node.textContent));
  const words = await page.$$eval('#throughput .chart', (charts) => charts.map((chart) => chart.getAttribute('aria-label')));
  if (both) check('array and drive have charts of their own', ['array', 'single drive'].every((target) => titles.some((title) => title.toLowerCase().includes(target))), titles);
  const heading = await page.textContent('#throughput-title');
  const meant = [[rates, 'Rate of resync or recovery'], [mkfs, 'Time of mkfs'], [paced, 'Mean latency at the trace’s pace'], [true, 'Throughput']].find(([is]) => is)[1];
  if (rates || words.length > 0) check('the charts are headed by what they show', heading === meant, heading);
  if (rates) check('without I/O the rate of the resync is drawn', words.length > 0 && words.every((text) => /\([1-9][^)]* MB\/s\)/.test(text)), words);
}

/** Presses every unpressed button of the controls in turn; each must change something and leave it drawn. */
async function checkControls(page, seen) {
  const count = await page.locator('#controls .segments button').count();
  for (let index = 0; index < count; index += 1) {
    const button = page.locator('#controls .segments button').nth(index);
    if (await button.getAttribute('aria-pressed') === 'true') continue;
    const words = `${await button.locator('..').getAttribute('aria-label')}: ${await button.textContent()}`;
    const before = await markup(page, 'throughput');
    await button.click();
    await settled(page);
    const counts = await drawn(page, 'throughput');
    const changed = before !== await markup(page, 'throughput');
    const single = (await page.locator('#throughput figure').count()) <= 1;
    check(`"${words}" redraws`, changed || (single && words.startsWith('Range')), counts);
    check(`"${words}" leaves charts or a reason`, counts.length > 0 ? counts.every((n) => n > 0) : await page.$('#throughput .empty') !== null, counts);
  }
  for (const group of await page.locator('#controls .segments').all()) await group.locator('button').first().click();
  await settled(page);
  check('no complaint after the controls', seen.complaints.length === 0, seen.complaints);
}

/** Chooses an option as with the keyboard, and looks where the keyboard is then. */
async function chooseByKeyboard(page, select, option) {
  const name = await select.evaluate((node) => node.closest('label').querySelector('span').textContent);
  await select.focus();
  await select.selectOption(option);
  await settled(page);
  const focused = await page.evaluate(() => document.activeElement.closest('label')?.querySelector('span').textContent ?? document.activeElement.tagName);
  check(`"${name}" keeps the keyboard's focus`, focused === name, focused);
}

/** Each part of a plan has charts of its own, and no filter for what it is without. */
async function checkParts(page, seen) {
  const select = page.locator('#controls select').first();
  const isPart = await page.locator('#controls').getByText('Part of the plan').count() > 0;
  if (!isPart) return;
  const [first, parts] = [await select.inputValue(), await select.locator('option').allTextContents()];
  for (const part of parts) {
    await chooseByKeyboard(page, select, { label: part });
    const counts = await drawn(page, 'throughput');
    check(`part "${part}" is drawn`, counts.length > 0 && counts.every((count) => count > 0), counts);
    const titles = await page.$$eval('#throughput h4', (nodes) => nodes.map((node) => node.textContent));
    check(`part "${part}" is not titled by what it is without`, titles.every((title) => !/\bno /.test(title)), titles);
    const points = await page.$$eval('#throughput .chart', (charts) => charts.map((chart) => chart.getAttribute('aria-label').split(': ').at(-1)));
    check(`part "${part}" has figures along its axis`, points.every((text) => !text.startsWith('no figures')), points);
    const along = { small: 'by block size', large: 'by run', controllers: 'by controller' }[part];
    const note = await page.textContent('#throughput-note');
    if (along) check(`part "${part}" has an axis of its own`, note.includes(along), note);
    const heatIsThere = await page.$eval('#relative', (node) => node.checkVisibility());
    const compares = await page.locator('#controls button.chip').count() > 0;
    check(`part "${part}" has shares of the best where values are compared`, heatIsThere === compares, { heatIsThere, compares });
  }
  check('no complaint after the parts', seen.complaints.length === 0, seen.complaints);
  await select.selectOption(first);
  await settled(page);
}

/** References of another part stand beside what they are references for. */
async function checkReferences(page) {
  const names = await page.$$eval('#controls select option', (nodes) => nodes.map((node) => node.textContent));
  if (!names.includes('controllers')) return;
  check('a part of references alone is none to choose', !names.includes('small-drive'), names);
  check('its targets are in the legend of the part it belongs to', (await page.textContent('#controls .legend')).includes('single drive'));
  const words = await page.$$eval('#latency svg text', (nodes) => nodes.map((node) => node.textContent));
  check('its latencies are beside those of the values', words.includes('single drive'), words);
  const select = page.locator('#controls select').first();
  await select.selectOption({ label: 'large' });
  await settled(page);
  const legend = await page.textContent('#controls .legend');
  check('what has no value of the subject is a reference by what decides that', legend.includes('bitmap none'), legend);
  check('and has no charts of its own', await page.locator('#throughput figure').count() === 2, await page.locator('#throughput figure').count());
  await select.selectOption({ label: 'small' });
  await settled(page);
}

/** On paper all charts are there, at once, in light colours and as wide as their columns. */
async function checkPrint(scheme) {
  await withPage(url, { width: 1280, scheme, waits: false }, async (page) => {
    const facts = () => page.evaluate(() => ({
      charts: document.querySelectorAll('.chart').length,
      scalable: document.querySelectorAll('.chart svg[viewBox]').length,
      scheme: getComputedStyle(document.documentElement).colorScheme,
    }));
    await page.waitForFunction(() => document.querySelector('.chart') !== null);
    await page.evaluate(() => dispatchEvent(new Event('beforeprint')));
    const paper = await facts();
    check(`${scheme}: on paper every chart is drawn`, paper.charts > 0 && paper.scalable === paper.charts, paper);
    check(`${scheme}: paper is light`, paper.scheme.includes('light') && !paper.scheme.includes('dark'), paper);
    await page.emulateMedia({ media: 'print' });
    const cut = await page.$$eval('.chart', (charts) => charts.filter((chart) => chart.querySelector('svg').getBoundingClientRect().width > chart.getBoundingClientRect().width + 1).length);
    check(`${scheme}: no chart is wider than its column on paper`, cut === 0, cut);
    check(`${scheme}: the legend is on paper`, await page.locator('#controls .legend').first().isVisible().catch(() => false) || await page.locator('#controls .legend').count() === 0);
    await page.emulateMedia({ media: 'screen' });
    await page.evaluate(() => dispatchEvent(new Event('afterprint')));
    await settled(page);
    const screen = await facts();
    check(`${scheme}: the screen is as before`, screen.scheme.includes(scheme) && screen.scalable === 0, screen);
  });
}

/** The numbers along each chart's value axis, by the unit above it. */
const valueAxes = (page) => page.$$eval('#throughput .chart', (charts) => charts.map((chart) => {
  const texts = [...chart.querySelectorAll('svg text')];
  const unit = texts.find((text) => /^(MB\/s|s|ms)$/.test(text.textContent))?.textContent;
  return [unit, texts.filter((text) => text.getAttribute('text-anchor') === 'end').map((text) => text.textContent).join(' ')];
}));

/** A common range is one for all charts of a unit, on either scale. */
async function checkRange(page) {
  const press = async (group, words) => {
    await page.locator(`#controls .segments[aria-label="${group}"] button`, { hasText: words }).click();
    await settled(page);
  };
  const differing = (axes) => [...new Set(axes.map(([unit, numbers]) => `${unit}: ${numbers}`))];
  const units = new Set((await valueAxes(page)).map(([unit]) => unit)).size;
  for (const scale of ['Log', 'Linear']) {
    await press('Scale', scale);
    await press('Range', 'Common');
    const axes = differing(await valueAxes(page));
    check(`${scale}: a common range is the same in all charts`, axes.length === units, axes);
    check(`${scale}: no text of a chart is cut at a common range`, (await cutTexts(page)).length === 0, await cutTexts(page));
    await press('Range', 'Own');
  }
  await press('Scale', 'Log');
}

async function checkLegend(page) {
  const chip = page.locator('#controls button.chip').first();
  const before = await markup(page, 'throughput');
  await chip.click();
  await settled(page);
  check('hiding a value redraws', before !== await markup(page, 'throughput'));
  check('a hidden value is marked', await chip.getAttribute('aria-pressed') === 'false');
  await chip.click();
  await settled(page);
}

async function checkLatency(page) {
  const selects = page.locator('#latency-controls select');
  for (let index = 0; index < await selects.count(); index += 1) {
    const options = await selects.nth(index).locator('option').count();
    if (options < 2) continue;
    const before = await markup(page, 'latency');
    await chooseByKeyboard(page, selects.nth(index), { index: options - 1 });
    check(`latency: choice ${index + 1} redraws`, before !== await markup(page, 'latency'));
  }
}

async function checkTooltip(page) {
  const chart = page.locator('#throughput .chart').first();
  await chart.scrollIntoViewIfNeeded();
  const box = await chart.boundingBox();
  await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
  await page.waitForTimeout(200);
  const text = await page.locator('#throughput .tip-body').first().textContent({ timeout: 3000 }).catch(() => '');
  const isAll = (field) => page.evaluate((field) => JSON.parse(document.getElementById('study-data').textContent).cells.every((cell) => cell[field]), field);
  const unit = await isAll(10) ? /\d s/ : await isAll(11) ? /\d ms/ : /MB\/s/;
  check('a tooltip gives figures with their unit', unit.test(text), text);
  await page.mouse.move(0, 0);
}

async function checkTheme(page) {
  const paper = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const before = [await paper(), await markup(page, 'throughput').catch(() => '')];
  await page.click('#theme');
  await settled(page);
  check('the theme button changes the page', before[0] !== await paper());
  if (before[1] !== '') check('the theme button changes the charts', before[1] !== await markup(page, 'throughput'));
  await page.click('#theme');
  await settled(page);
}

async function checkTables(page) {
  const total = await page.$eval('#study-data', (node) => JSON.parse(node.textContent).cells.length);
  await page.click('#cells-details > summary');
  const rows = await page.locator('table.cells tbody tr:not(.why)').count();
  check('the table of cells shows a page of them', rows === Math.min(total, 50), rows);
  if (total > 0) {
    const key = await page.$eval('#study-data', (node) => JSON.parse(node.textContent).cells.at(-1)[0]);
    await page.fill('.cells-bar input', key);
    check('a cell is found by its key', (await page.locator('table.cells tbody').textContent()).includes(key));
    await page.fill('.cells-bar input', 'no-such-cell');
    check('a search without result says so', (await page.locator('.cells-bar .status').textContent()).includes('No cell'));
  }
  await page.fill('.cells-bar input', '');
  for (const details of await page.locator('details:not([open]) > summary').all()) await details.click();
  const { width, window } = await page.evaluate(() => ({ width: document.documentElement.scrollWidth, window: innerWidth }));
  check('no horizontal scroll with everything open', width <= window, { width, window });
}

async function checkCopy(page) {
  const button = page.locator('.copy').first();
  const expected = await page.locator(`#${await button.getAttribute('data-copy')}`).textContent();
  await button.click();
  await page.waitForTimeout(200);
  const copied = await page.evaluate(() => navigator.clipboard.readText()).catch(() => getSelection().toString());
  check('the copy button copies the commands', copied === expected, copied);
}

for (const [width, scheme] of [[1280, 'light'], [1280, 'dark'], [390, 'light'], [390, 'dark']]) {
  const name = `${width} px, ${scheme}`;
  await withPage(url, { width, scheme }, async (page, seen) => {
    const figures = await page.$('#controls') !== null;
    await checkBasics(page, seen, name);
    if (figures) {
      await checkCharts(page, name);
      await checkWhatIsDrawn(page);
    }
    if (!figures) check(`${name}: without figures, the page says so`, await page.$('#figures .empty') !== null);
    const light = await page.evaluate(() => getComputedStyle(document.body).colorScheme || getComputedStyle(document.documentElement).colorScheme);
    check(`${name}: the system's theme holds`, light.includes(scheme), light);
    await picture(page, `${width}-${scheme}`);
    if (scheme === 'light') {
      await checkTheme(page);
      if (figures) {
        if (width === 1280) await checkTooltip(page);
        await checkReferences(page);
        await checkParts(page, seen);
        await checkLegend(page);
        await checkLatency(page);
        await checkControls(page, seen);
        await checkRange(page);
      }
      await checkCopy(page);
      await checkTables(page);
    }
    check(`${name}: no complaint in the console`, seen.complaints.length === 0, seen.complaints);
  });
}
if (await withPage(url, { width: 1280, scheme: 'light' }, async (page) => page.$('.chart'))) {
  for (const scheme of ['light', 'dark']) await checkPrint(scheme);
}
await close();
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed === 0 ? 0 : 1;
