// Printing: paper is light, its charts are as wide as its columns, and none of them is still to be drawn.

let themeOnScreen;

addEventListener('beforeprint', () => {
  themeOnScreen = document.documentElement.dataset.theme;
  document.documentElement.dataset.theme = 'light';
  queue = [];
  for (const chart of charts) {
    draw(chart);
    const { width, height } = chart.canvas.getBoundingClientRect();
    chart.canvas.querySelector('svg')?.setAttribute('viewBox', `0 0 ${width} ${height}`);
  }
});

addEventListener('afterprint', () => {
  if (themeOnScreen === undefined) delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = themeOnScreen;
  for (const { canvas } of charts) canvas.querySelector('svg')?.removeAttribute('viewBox');
  redrawAll();
});
