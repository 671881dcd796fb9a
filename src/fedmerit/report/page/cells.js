// Cells: a run as a grid of clients by rounds, in the order the reader wants.

const OUT = -1; // stands in the grid for the weight of a client that was left out

// weight[client][round place] is null where the client was not selected; marks are [client, round] of those left out.
function cellsOf(run) {
  const weight = run.names.map(() => new Array(numbersOf(run).length).fill(null));
  const grid = { weight, marks: [], sized: numbersOf(run).length };
  const values = numbersOf(run).map((_, place) => fillColumn(run, grid, place));
  return { ...grid, ...topWeight(values.flat()) };
}

// A round into its column; its weights.
function fillColumn(run, { weight, marks }, place) {
  const [round, column] = [numbersOf(run)[place], weightsOf(run, place)];
  idsOf(run, place).forEach((id, k) => (weight[id][place] = column[k]));
  for (const { client } of leftOut(run, round)) {
    weight[client][place] = OUT;
    marks.push([client, round]);
  }
  return column;
}

// The mean weight of each client over the rounds in which it had one; -1 where it never had.
const meanWeights = (run) =>
  (run.means ??= cells(run).weight.map((row) => average(row.filter((value) => value !== null && value !== OUT))));

const average = (values) => (values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : -1);

// The strongest colour stands for the 99.5th percentile: one client alone in a round would bleach all others.
function topWeight(values) {
  const sorted = Float64Array.from(values).sort();
  const most = lastOf(sorted) || 1;
  const top = sorted.length > 400 ? sorted[Math.floor(sorted.length * 0.995)] || most : most;
  return { top, capped: most > top };
}

const cells = (run) => (run.cells ??= cellsOf(run));

// Client numbers as in the federation, or by a value, the highest first.
const inOrder = (run, value) => {
  const ids = run.names.map((_, id) => id);
  return value ? ids.sort((a, b) => value[b] - value[a] || a - b) : ids;
};

// Large enough cells have lines between them, and a cross where a client was left out.
const roomy = (run) => run.names.length <= 60 && numbersOf(run).length <= 100;

const mapHeight = (run) => Math.round(Math.max(120, Math.min(run.names.length * 20, narrow() ? 420 : 760)));

// Names for as many rows as there is room for, over the rows in view.
function clientTicks(run, order, from, to) {
  const [low, high] = [Math.max(0, Math.ceil(from)), Math.min(order.length - 1, Math.floor(to))];
  const step = Math.max(1, Math.ceil((high - low + 1) / (mapHeight(run) / 17)));
  const rows = order.map((_, row) => row).filter((row) => row >= low && row <= high && (row - low) % step === 0);
  const attackers = attackersOf(run);
  const name = (id) => flat(run.names[id], narrow() ? 8 : 18);
  const named = (id) => (attackers.has(id) ? `${ATTACKER} ${name(id)}` : name(id));
  return { tickvals: rows, ticktext: rows.map((row) => named(order[row])) };
}
const ATTACKER = "▲"; // before the name of a client that attacks

const mapAxis = (extra) => axis({ showgrid: false, automargin: true, ...extra });

function roundAxis(run) {
  const numbers = numbersOf(run);
  const [first, last, margin] = [numbers[0] - 0.5, lastOf(numbers) + 0.5, numbers.length / 250];
  return mapAxis({ title: titled("round"), range: [first - margin, last + margin], tickformat: "d" });
}

function mapAxes(run, order) {
  const ticks = clientTicks(run, order, 0, order.length);
  const [margin, end] = [order.length / 200, order.length - 0.5]; // room for the frame around a cell at the edge
  return {
    xaxis: roundAxis(run),
    yaxis: mapAxis({ title: titled("client"), range: [end + margin, -0.5 - margin], ...ticks }),
  };
}

// The chosen cell, in a frame of two colours: one of them stands out of any.
function outline(order) {
  const [x, y] = [state.round, order.indexOf(state.client)];
  const box = { type: "rect", x0: x - 0.5, x1: x + 0.5, y0: y - 0.5, y1: y + 0.5 };
  const frame = (name, width) => ({ ...box, line: { color: cssValue(name), width } });
  return [frame("ink", 5), frame("paper", 2)];
}

// A map of clients by rounds: who it names follows the part in view, arrow keys walk over its cells as they are drawn.
function listenToMap(place, orderOf, said) {
  const cell = ({ x, y }) => [x, orderOf(RUNS[state.run])[y]];
  onHover(place, (point) => said(RUNS[state.run], ...cell(point)));
  place.on("plotly_relayout", (change) => {
    if (Object.keys(change).some((key) => key.startsWith("yaxis.range"))) nameRows(place, orderOf);
  });
  onArrows(place, (right, down) => walk(orderOf(RUNS[state.run]), right, down));
  return cell;
}

function nameRows(place, orderOf) {
  const [run, { range }] = [RUNS[state.run], place.layout.yaxis];
  const ticks = clientTicks(run, orderOf(run), Math.min(...range), Math.max(...range));
  Plotly.relayout(place, { "yaxis.tickvals": ticks.tickvals, "yaxis.ticktext": ticks.ticktext });
}

function walk(order, right, down) {
  const numbers = numbersOf(RUNS[state.run]);
  const [column, row] = [numbers.indexOf(state.round) + right, order.indexOf(state.client) + down];
  if (column in numbers && row in order) choose({ round: numbers[column], client: order[row] });
}
