// Weights: the heat map of clients by rounds; choosing a cell explains it.

const MARKS = 1500; // crosses drawn over left-out cells; past that the colour alone must do

// All cells of a run: z[client][round place], null where the client has no weight.
function cellsOf(run) {
  const places = new Map(run.rounds.map(({ round }, i) => [round, i]));
  const blank = () => run.names.map(() => new Array(run.rounds.length).fill(null));
  const cells = { weight: blank(), out: null, mean: run.names.map(() => 0), marks: [], values: [] };
  run.rounds.forEach((packed, i) => {
    const weight = unpack(packed.weight, packed);
    packed.ids.forEach((id, k) => { cells.weight[id][i] = weight[k]; });
    cells.values.push(...weight);
  });
  cells.mean = cells.weight.map((row) => average(row.filter((value) => value !== null)));
  for (const [round, events] of run.said) {
    for (const { client } of events) if (client !== null) cells.marks.push([client, places.get(round), round]);
  }
  if (cells.marks.length) cells.out = blank();
  for (const [client, place] of cells.marks) cells.out[client][place] = 1;
  return cells;
}

const average = (values) => (values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : -1);
const cells = (run) => (run.cells ??= cellsOf(run));

function orderOf(run) {
  const ids = run.names.map((_, id) => id);
  const { mean } = cells(run);
  return $("weights-order").value === "mean" ? ids.sort((a, b) => mean[b] - mean[a] || a - b) : ids;
}

// The darkest colour stands for the 99.5th percentile: one client alone in a round would bleach all others.
function topWeight(values) {
  const sorted = Float64Array.from(values).sort();
  const top = sorted.length > 400 ? sorted[Math.floor(sorted.length * 0.995)] : sorted[sorted.length - 1];
  return { top: top || 1, capped: sorted[sorted.length - 1] > top };
}

function weightTraces(run, order) {
  const { weight, out, marks, values } = cells(run);
  const rounds = run.rounds.map(({ round }) => round);
  const common = { type: "heatmap", x: rounds, y: order.map((_, row) => row), zmin: 0, hoverongaps: true };
  const scale = ["none", "mid", "full"].map((name, i) => [i / 2, cssValue(`scale-${name}`)]);
  const bar = { thickness: 10, outlinewidth: 0, tickformat: ".1~%", len: 1, tickfont: { color: cssValue("muted") }, nticks: 6 };
  const traces = [{ ...common, z: order.map((id) => weight[id]), zmax: topWeight(values).top, colorscale: scale, colorbar: bar, hoverinfo: "none", showscale: !narrow() }];
  if (!marks.length) return traces;
  const colour = cssValue("out");
  traces.push({ ...common, z: order.map((id) => out[id]), zmax: 1, colorscale: [[0, colour], [1, colour]], showscale: false, hoverinfo: "skip" });
  if (marks.length > MARKS) return traces;
  const rowOf = new Map(order.map((id, row) => [id, row]));
  const cross = { symbol: "x-thin", size: 7, line: { width: 1.5, color: cssValue("on-out") } };
  traces.push({ x: marks.map(([, , round]) => round), y: marks.map(([client]) => rowOf.get(client)), mode: "markers", marker: cross, hoverinfo: "skip" });
  return traces;
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
  const line = { color: cssValue("ink"), width: 2 };
  return [{ type: "rect", x0: x - 0.5, x1: x + 0.5, y0: y - 0.5, y1: y + 0.5, line }];
}

function drawWeights() {
  const run = RUNS[state.run];
  const empty = !run.rounds.length;
  $("weights-plot").hidden = $("weights-keys").hidden = empty;
  $("weights-empty").hidden = !empty;
  $("weights-empty").textContent = `${shorten(run.label)} has no round yet.`;
  if (empty) return;
  const [order, height] = [orderOf(run), mapHeight(run)];
  const [first, last] = [run.rounds[0].round, run.rounds[run.rounds.length - 1].round];
  draw($("weights-plot"), weightTraces(run, order), {
    height: height + 60, hovermode: "closest", shapes: outline(order), uirevision: `${state.run} ${$("weights-order").value}`,
    xaxis: axis({ title: titled("round"), range: [first - 0.5, last + 0.5], showgrid: false, tickformat: "d" }),
    yaxis: axis({ range: [order.length - 0.5, -0.5], showgrid: false, automargin: true, ticks: "", ...clientTicks(run, order, 0, order.length, height) }),
  });
  showKeys(run);
}

function showKeys(run) {
  const { marks, values } = cells(run);
  const { top, capped } = topWeight(values);
  const key = (kind, text) => el("span", { class: "entry" }, el("span", { class: `key ${kind}`, "aria-hidden": "true" }), text);
  $("weights-keys").replaceChildren(
    key("low", "weight 0"), key("high", values.length ? `${weightText(top)}${capped ? " and more" : ""}` : "heaviest"),
    key("blank", "not drawn"), key("out", `left out${marks.length ? ` (${plural(marks.length, "time")})` : " (never)"}`));
}

function moveOutline() {
  if (RUNS[state.run].rounds.length) Plotly.relayout($("weights-plot"), { shapes: outline(orderOf(RUNS[state.run])) });
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
  if (!plot.on) return; // no run has a round: nothing was drawn
  const cell = ({ points: [point] }) => [point.x, orderOf(RUNS[state.run])[point.y]];
  plot.on("plotly_hover", (hover) => showTip(hover.event, fateText(RUNS[state.run], ...cell(hover))));
  plot.on("plotly_unhover", hideTip);
  plot.on("plotly_click", (click) => {
    const [round, client] = cell(click);
    choose({ round, client });
    reveal($("explain"));
  });
  plot.on("plotly_relayout", (change) => {
    if (!Object.keys(change).some((key) => key.startsWith("yaxis.range") || key === "yaxis.autorange")) return;
    const [run, { range }] = [RUNS[state.run], plot.layout.yaxis];
    const ticks = clientTicks(run, orderOf(run), Math.min(...range), Math.max(...range), mapHeight(run));
    Plotly.relayout(plot, { "yaxis.tickvals": ticks.tickvals, "yaxis.ticktext": ticks.ticktext });
  });
}
