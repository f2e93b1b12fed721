// Heat maps of throughput relative to the best subject value of the same position: where a choice costs.

/** A panel's squares as [position, value, share, figure]. */
function shares(panel, values, positions = model.positions) {
  return positions.flatMap((position, column) => {
    const entries = study.subject_values.map((value) => panel.at(position, `value:${value}`));
    const speeds = entries.map(speedOf);
    const best = Math.max(...speeds.filter(Number.isFinite));
    return values.map(({ index }, row) => [column, row, speeds[index] / best, entries[index]?.mean])
      .filter(([, , share]) => Number.isFinite(share));
  });
}

/** The lowest share of the whole study, down to a full ten per cent: the foot of the colour ramp. */
const lowestShare = (() => {
  const values = study.subject_values.map((_, index) => ({ index }));
  const all = models.flatMap(({ panels, positions }) => panels.flatMap((panel) => shares(panel, values, positions)));
  const lowest = all.reduce((low, [, , share]) => Math.min(low, share), 0.9);
  return Math.floor(lowest * 10) / 10;
})();

function relativeOption(panel, width) {
  const colours = tokens();
  const values = shownValues();
  const squares = shares(panel, values);
  const square = (width - 70) / model.positions.length;
  const heat = [0, 1, 2, 3, 4].map((step) => colours[`heat-${step}`]);
  // Text takes the colour that stands out more; the ramps pass the point where both are equal here.
  const turn = lowestShare + (1 - lowestShare) * (dark() ? 0.6 : 0.8);
  const label = (share) => (share > turn ? colours.surface : colours.ink);
  return {
    grid: { left: 4, right: 8, top: 8, bottom: 4, containLabel: true },
    tooltip: tooltip('item', ({ data }) => {
      const [column, row, share, mean] = data.value;
      const { value, index } = values[row];
      return tipBody(`${model.axis ? `${factorName(model.axis)} ${model.positions[column]}` : panelTitle(panel)}`,
        [[colourOf(index), value, percent(share), 'of the best'], ['transparent', '', `${digits(mean)} ${unitOf(panel)}`, '']]);
    }),
    xAxis: categoryAxis(model.positions, colours, { axisLine: { show: false }, axisLabel: {
      color: colours.muted, fontFamily: MONO, fontSize: square >= 34 ? 11 : 10, interval: square >= 25 ? 0 : 'auto', margin: 6 } }),
    yAxis: categoryAxis(values.map(({ value }) => value), colours, { inverse: true, axisLine: { show: false } }),
    visualMap: { show: false, min: lowestShare, max: 1, dimension: 2, inRange: { color: heat } },
    series: [{
      type: 'heatmap',
      data: squares.map((value) => ({ value, label: { color: label(value[2]), fontWeight: value[2] > 0.9995 ? 700 : 400 } })),
      label: { show: square >= 24, fontSize: square >= 32 ? 11 : 10, fontFamily: FONT, formatter: ({ value }) => String(Math.round(value[2] * 100)) },
      itemStyle: { borderColor: colours.surface, borderWidth: 2, borderRadius: 3 },
      emphasis: { itemStyle: { borderColor: colours.ink, borderWidth: 2 } },
    }],
  };
}

function relativeWords(panel) {
  const squares = shares(panel, study.subject_values.map((value, index) => ({ value, index })));
  const worst = squares.reduce((low, square) => (square[2] < low[2] ? square : low), [0, 0, Infinity]);
  const words = Number.isFinite(worst[2])
    ? `Lowest: ${study.subject_values[worst[1]]} at ${model.positions[worst[0]]}, ${percent(worst[2])}.` : 'No figures.';
  return `${unitOf(panel) === 's' ? 'Speed of mkfs' : 'Throughput'} relative to the best ${factorName(study.subject)}, ${panelTitle(panel)}. ${words}`;
}

function relativeFigures(panels) {
  return panels.map((panel) => {
    const node = figure(panelTitle(panel), relativeWords(panel), (width) => relativeOption(panel, width), 'heat');
    node.querySelector('.chart').style.setProperty('--rows', shownValues().length);
    return node;
  });
}
