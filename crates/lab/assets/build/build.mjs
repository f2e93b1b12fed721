// Reproduces the generated files of ../ (echarts.min.js, fonts.css, licenses/) from the locked packages.
// Run `npm ci && npm run build` here, with Node 20 or later; commit the result.
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { build } from 'esbuild';

const read = (path) => readFileSync(new URL(`node_modules/${path}`, import.meta.url), 'utf8');
const assets = new URL('../', import.meta.url);
const version = (name) => JSON.parse(read(`${name}/package.json`)).version;

const banner = `/*! Apache ECharts ${version('echarts')}, reduced build. Licensed under the Apache License 2.0:
https://www.apache.org/licenses/LICENSE-2.0

${read('echarts/NOTICE').trim()}

Contains zrender ${version('zrender')}:
${read('zrender/LICENSE').trim()}

Contains tslib ${version('tslib')}, copyright Microsoft Corporation, 0BSD. */`;

await build({
  entryPoints: ['echarts-entry.mjs'],
  bundle: true,
  minify: true,
  format: 'iife',
  globalName: 'echarts',
  target: 'es2020',
  charset: 'ascii',
  define: { 'process.env.NODE_ENV': '"production"' },
  legalComments: 'none',
  banner: { js: banner },
  outfile: new URL('echarts.min.js', assets).pathname,
});

const sans = '@fontsource-variable/ibm-plex-sans';
const mono = '@fontsource/ibm-plex-mono';
const faces = [
  ['Plex Sans', '100 700', `${sans}/files/ibm-plex-sans-latin-wght-normal.woff2`],
  ['Plex Mono', '400', `${mono}/files/ibm-plex-mono-latin-400-normal.woff2`],
  ['Plex Mono', '600', `${mono}/files/ibm-plex-mono-latin-600-normal.woff2`],
].map(([family, weight, path]) => {
  const data = readFileSync(new URL(`node_modules/${path}`, import.meta.url)).toString('base64');
  return `@font-face{font-family:"${family}";font-weight:${weight};font-display:block;` +
    `src:url(data:font/woff2;base64,${data}) format("woff2")}`;
});
writeFileSync(
  new URL('fonts.css', assets),
  `/*! IBM Plex Sans ${version(sans)} and IBM Plex Mono ${version(mono)}, Latin. ` +
    `Copyright IBM Corp., SIL Open Font License 1.1: https://openfontlicense.org */\n${faces.join('\n')}\n`,
);

mkdirSync(new URL('licenses/', assets), { recursive: true });
for (const [from, to] of [
  ['echarts/LICENSE', 'echarts-LICENSE'],
  ['echarts/NOTICE', 'echarts-NOTICE'],
  ['zrender/LICENSE', 'zrender-LICENSE'],
  ['tslib/LICENSE.txt', 'tslib-LICENSE'],
  [`${sans}/LICENSE`, 'ibm-plex-sans-OFL'],
  [`${mono}/LICENSE`, 'ibm-plex-mono-OFL'],
]) {
  cpSync(new URL(`node_modules/${from}`, import.meta.url), new URL(`licenses/${to}.txt`, assets));
}
