// Weights: the heat map of clients by rounds; choosing a cell explains it.

function weightTraces(run, order) {
  const { weight, marks, top } = cells(run);
  const map = {
    type: "heatmap",
    x: run.rounds.map(({ round }) => round),
    y: order.map((_, row) => row),
    z: order.map((id) => weight[id]),
    ...weightScale(top),
    ...(roomy(run) ? { xgap: 1, ygap: 1 } : {}),
    hoverongaps: true, // a client that was not drawn has its story, too
    hoverinfo: "none",
  };
  return marks.length && roomy(run) ? [map, crossTrace(marks, order)] : [map];
}

// From no weight to the heaviest; whatever lies below 0 was left out and has a colour of its own.
function weightScale(top) {
  const [out, none, mid, full] = ["out", "scale-none", "scale-mid", "scale-full"].map(cssValue);
  const tickfont = { color: cssValue("muted") };
  return {
    zmin: -top / 1000,
    zmax: top,
    colorscale: [
      [0, out],
      [0.0005, out],
      [0.0005, none],
      [0.5, mid],
      [1, full],
    ],
    colorbar: { thickness: 10, outlinewidth: 0, tickformat: ".1~%", nticks: 6, tickfont },
    showscale: !narrow(),
  };
}

function crossTrace(marks, order) {
  const rows = new Map(order.map((id, row) => [id, row]));
  const marker = { symbol: "x-thin", size: 7, line: { width: 1.5, color: cssValue("on-out") } };
  const [x, y] = [marks.map(([, round]) => round), marks.map(([client]) => rows.get(client))];
  return { type: "scatter", mode: "markers", x, y, marker, hoverinfo: "skip" };
}

// Names for as many rows as there is room for, over the rows in view.
function clientTicks(run, order, from, to, height) {
  const [low, high] = [Math.max(0, Math.ceil(from)), Math.min(order.length - 1, Math.floor(to))];
  const step = Math.max(1, Math.ceil((high - low + 1) / (height / 17)));
  const rows = order.map((_, row) => row).filter((row) => row >= low && row <= high && (row - low) % step === 0);
  return { tickvals: rows, ticktext: rows.map((row) => flat(run.names[order[row]], narrow() ? 8 : 18)) };
}

const mapHeight = (run) => Math.round(Math.max(120, Math.min(run.names.length * 20, narrow() ? 420 : 760)));

function outline(order) {
  const [x, y] = [state.round, order.indexOf(state.client)];
  const box = { type: "rect", x0: x - 0.5, x1: x + 0.5, y0: y - 0.5, y1: y + 0.5 };
  const frame = (name, width) => ({ ...box, line: { color: cssValue(name), width } });
  return [frame("ink", 5), frame("paper", 2)]; // one of the two stands out of any colour
}

function drawWeights() {
  const run = RUNS[state.run];
  const empty = !run.rounds.length;
  $("weights-plot").hidden = $("weights-keys").hidden = empty;
  $("weights-empty").hidden = !empty;
  $("weights-empty").textContent = `${shorten(run.label)} has no round yet.`;
  if (empty) return;
  const order = orderOf(run);
  draw($("weights-plot"), weightTraces(run, order), {
    height: mapHeight(run) + 60,
    hovermode: "closest",
    shapes: outline(order),
    uirevision: `${state.run} ${$("weights-order").value}`, // keeps the part in view while nothing else changes
    ...mapAxes(run, order),
  });
  showKeys(run);
}

function mapAxes(run, order) {
  const [first, last] = [run.rounds[0].round, run.rounds[run.rounds.length - 1].round];
  const common = { showgrid: false, automargin: true };
  const ticks = clientTicks(run, order, 0, order.length, mapHeight(run));
  return {
    xaxis: axis({ ...common, title: titled("round"), range: [first - 0.5, last + 0.5], tickformat: "d" }),
    yaxis: axis({ ...common, range: [order.length - 0.5, -0.5], ...ticks }),
  };
}

function showKeys(run) {
  const { marks, top, capped } = cells(run);
  const key = (kind, text) =>
    el("span", { class: "entry" }, el("span", { class: `key ${kind}`, "aria-hidden": "true" }), text);
  $("weights-keys").replaceChildren(
    key("low", "weight 0"),
    key("high", `${weightText(top)}${capped ? " and more" : ""}`),
    key("blank", "not drawn"),
    key("out", `left out${marks.length ? ` (${plural(marks.length, "time")})` : " (never)"}`),
  );
}

function moveOutline() {
  const run = RUNS[state.run];
  if (window.Plotly && run.rounds.length) Plotly.relayout($("weights-plot"), { shapes: outline(orderOf(run)) });
}

// Arrow keys walk over the cells as they are drawn.
function walk(event) {
  const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
  if (!step || !RUNS[state.run].rounds.length) return;
  event.preventDefault();
  const [run, order] = [RUNS[state.run], orderOf(RUNS[state.run])];
  const column = run.rounds.findIndex(({ round }) => round === state.round) + step[0];
  const row = order.indexOf(state.client) + step[1];
  if (column in run.rounds && row in order) choose({ round: run.rounds[column].round, client: order[row] });
}

function listenToWeights() {
  const plot = $("weights-plot");
  if (!plot.on || plot.heard) return; // nothing drawn, or listening already
  plot.heard = true;
  const cell = ({ points: [point] }) => [point.x, orderOf(RUNS[state.run])[point.y]];
  plot.on("plotly_hover", (hover) => showTip(hover.event, fateText(RUNS[state.run], ...cell(hover))));
  plot.on("plotly_unhover", hideTip);
  plot.on("plotly_click", (click) => {
    const [round, client] = cell(click);
    choose({ round, client });
    reveal($("explain"));
  });
  plot.on("plotly_relayout", (change) => {
    if (Object.keys(change).some((key) => key.startsWith("yaxis.range"))) nameRows(plot);
  });
}

function nameRows(plot) {
  const [run, { range }] = [RUNS[state.run], plot.layout.yaxis];
  const ticks = clientTicks(run, orderOf(run), Math.min(...range), Math.max(...range), mapHeight(run));
  Plotly.relayout(plot, { "yaxis.tickvals": ticks.tickvals, "yaxis.ticktext": ticks.ticktext });
}
