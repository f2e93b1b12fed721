// A browser that reports everything it wants to fetch and everything it complains of.
import { existsSync } from 'node:fs';
import { chromium } from 'playwright-core';

const FLAGS = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
  '--disable-background-networking', '--disable-component-update', '--disable-sync'];

function binary() {
  const candidates = [process.env.CHROMIUM, '/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];
  const found = candidates.find((path) => path && existsSync(path));
  if (!found) throw new Error('no Chromium found: install the package chromium, or name the binary in CHROMIUM');
  return found;
}

let browser; // one for all pages: starting it takes longer than most checks

/** Opens `url` in a context of its own, which shares nothing with others, passes the page to `use`, and cleans up. Answers what `use`
 *  does. Unless it `waits`, charts may still be undrawn. */
export async function withPage(url, { width, scheme, waits = true }, use) {
  browser ??= await chromium.launch({ executablePath: binary(), headless: true, args: FLAGS });
  const context = await browser.newContext({
    viewport: { width, height: 900 },
    colorScheme: scheme,
    reducedMotion: 'reduce',
    permissions: ['clipboard-read', 'clipboard-write'],
  });
  try {
    const page = await context.newPage();
    const seen = { complaints: [], requests: [] };
    page.on('console', (message) => {
      if (['error', 'warning'].includes(message.type())) seen.complaints.push(message.text());
    });
    page.on('pageerror', (error) => seen.complaints.push(error.stack));
    page.on('request', (request) => {
      // Fonts and ornaments are data inside the file itself.
      if (!request.url().startsWith('data:')) seen.requests.push(request.url());
    });
    await page.goto(url);
    if (waits) await settled(page);
    return await use(page, seen);
  } finally {
    await context.close();
  }
}

/** Ends the browser. */
export async function close() {
  await browser?.close();
}

/** Waits until no chart waits to be drawn. */
export async function settled(page) {
  await page.waitForFunction(() => !document.getElementById('controls')
    || document.documentElement.dataset.charts === 'ready', null, { timeout: 30_000 });
  await page.evaluate(() => new Promise((done) => { requestAnimationFrame(() => requestAnimationFrame(done)); }));
}
