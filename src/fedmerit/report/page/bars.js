// Bars: all weights of the selected client's round, or group, highest first, against an equal share.

// Those that are compared: the chosen client's peers, or all where it has no weight.
function barRows(run) {
  const rows = rowsOf(run, state.round);
  const mine = rows.find(({ id }) => id === state.client);
  return mine ? peersOf(rows, mine) : rows;
}

function drawBars() {
  const run = RUNS[state.run];
  const rows = barRows(run);
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
    margin: { l: 8, r: 28, t: 8, b: 8 }, // room for the end of the last name, which stands aslant
    bargap: rows.length > 100 ? 0 : 0.25,
    hovermode: "closest",
    dragmode: false,
    ...barAxes(run, rows),
    ...(rows.every(({ group }) => group === rows[0].group) ? equalShare(1 / rows.length) : {}),
  });
}

// Names under the bars, where there is room for them.
function barAxes(run, rows) {
  const named = rows.length <= (narrow() ? 12 : 30);
  const names = { tickvals: rows.map((_, i) => i), ticktext: rows.map((row) => flat(run.names[row.id], 12)) };
  const whose = rows.length ? shareOf(run, state.round, rows[0].group) : "";
  const title = titled(`clients of ${whose}, highest weight first`);
  const common = { fixedrange: true, automargin: true };
  return {
    xaxis: axis({ ...common, title, showgrid: false, ...(named ? names : { showticklabels: false }) }),
    yaxis: axis({ ...common, title: titled("weight"), tickformat: ".3~p", rangemode: "tozero" }),
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

function listenToBars(place) {
  const client = ({ x }) => barRows(RUNS[state.run])[x].id;
  onHover(place, (point) => fateText(RUNS[state.run], state.round, client(point)));
  place.on("plotly_click", ({ points: [point] }) => choose({ client: client(point) }));
}
