
// Draws the series of a run with uPlot in place of their SVG pictures: drag to zoom, double-click
// to go back, numbers under the pointer.
(() => {
  const charts = JSON.parse(document.getElementById('series-data').textContent);
  const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  let plots = [];
  const draw = () => {
    plots.forEach(plot => plot.destroy());
    plots = charts.map(chart => {
      const box = document.querySelector('#' + chart.id + '-card .scroll');
      box.parentElement.classList.add('has-plot');
      const axis = {
        stroke: colour('--ink2'),
        grid: {stroke: colour('--grid'), width: 1},
        ticks: {stroke: colour('--grid'), width: 1},
        font: '12px system-ui, sans-serif',
      };
      const series = chart.lines.map(([name, marks], i) => ({
        label: name,
        stroke: marks === null ? colour('--ink2') : colour(i === 0 ? '--blue' : '--vermillion'),
        dash: marks === null ? [5, 4] : undefined,
        width: marks === null ? 1.2 : 1.6,
        spanGaps: true,
        points: {show: marks === true},
        value: (plot, value) => value === null ? '–' : Number(value.toPrecision(5)).toString(),
      }));
      return new uPlot({
        width: box.clientWidth,
        height: 270,
        scales: {x: {time: false}, y: chart.zero ? {range: (plot, min, max) => [0, max * 1.08]} : {}},
        axes: [{...axis}, {...axis, size: 58}],
        series: [{label: 'step'}, ...series],
        cursor: {drag: {x: true, y: false}},
      }, chart.data, box);
    });
  };
  draw();
  addEventListener('resize', () => plots.forEach(
      plot => plot.setSize({width: plot.root.parentElement.clientWidth, height: 270})));
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
})();
