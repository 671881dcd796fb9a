// Bars: all weights of the chosen round, heaviest first, against an equal share; choosing a bar explains it.

function drawBars(run, rows) {
  const [own, other] = [cssValue("accent"), cssValue("bar")];
  const bars = {
    type: "bar",
    x: rows.map((_, i) => i),
    y: rows.map((row) => row.weight),
    marker: { color: rows.map((row) => (row.id === state.client ? own : other)) },
    hoverinfo: "none",
  };
  draw($("explain-plot"), [bars], {
    height: 300,
    bargap: rows.length > 100 ? 0 : 0.25,
    hovermode: "closest",
    dragmode: false,
    ...barAxes(run, rows),
    ...equalShare(1 / rows.length),
  });
}

// Names under the bars, where there is room for them.
function barAxes(run, rows) {
  const named = rows.length <= (narrow() ? 12 : 30);
  const names = { tickvals: rows.map((_, i) => i), ticktext: rows.map((row) => flat(run.names[row.id], 12)) };
  const title = titled(`clients of round ${state.round}, heaviest first`);
  const common = { fixedrange: true, automargin: true };
  return {
    xaxis: axis({ ...common, title, showgrid: false, ...(named ? names : { showticklabels: false }) }),
    yaxis: axis({ ...common, title: titled("weight"), tickformat: ".1~%", rangemode: "tozero" }),
  };
}

function equalShare(share) {
  const line = { color: cssValue("muted"), dash: "dash", width: 1 };
  const label = { text: "equal share", font: { color: cssValue("muted") }, showarrow: false };
  return {
    shapes: [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: share, y1: share, line }],
    annotations: [{ ...label, xref: "paper", x: 1, y: share, xanchor: "right", yanchor: "bottom" }],
  };
}

function listenToBars() {
  const plot = $("explain-plot");
  if (!plot.on || plot.heard) return; // nothing drawn, or listening already
  plot.heard = true;
  const row = ({ points: [point] }) => rowsOf(RUNS[state.run], state.round)[point.x];
  plot.on("plotly_hover", (hover) => showTip(hover.event, fateText(RUNS[state.run], state.round, row(hover).id)));
  plot.on("plotly_unhover", hideTip);
  plot.on("plotly_click", (click) => choose({ client: row(click).id }));
}
