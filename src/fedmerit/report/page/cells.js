// Cells: a run's weights as a grid of clients by rounds, in the order the reader wants.

const OUT = -1; // stands in the grid for the weight of a client that was left out

// weight[client][round place] is null where the client was not drawn; marks are [client, round] of those left out.
function cellsOf(run) {
  const weight = run.names.map(() => new Array(run.rounds.length).fill(null));
  const [values, marks] = [[], []];
  run.rounds.forEach((packed, place) => {
    const column = unpack(packed.weight, packed);
    packed.ids.forEach((id, k) => (weight[id][place] = column[k]));
    values.push(...column);
    for (const { client } of leftOut(run, packed.round)) {
      weight[client][place] = OUT;
      marks.push([client, packed.round]);
    }
  });
  const mean = weight.map((row) => average(row.filter((value) => value !== null && value !== OUT)));
  return { weight, marks, mean, ...topWeight(values) };
}

const average = (values) => (values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : -1);

// The strongest colour stands for the 99.5th percentile: one client alone in a round would bleach all others.
function topWeight(values) {
  const sorted = Float64Array.from(values).sort();
  const most = sorted[sorted.length - 1] || 1;
  const top = sorted.length > 400 ? sorted[Math.floor(sorted.length * 0.995)] || most : most;
  return { top, capped: most > top };
}

const cells = (run) => (run.cells ??= cellsOf(run));

function orderOf(run) {
  const ids = run.names.map((_, id) => id);
  const { mean } = cells(run);
  return $("weights-order").value === "mean" ? ids.sort((a, b) => mean[b] - mean[a] || a - b) : ids;
}

// Large enough cells bear lines between them, and a cross where a client was left out.
const roomy = (run) => run.names.length <= 60 && run.rounds.length <= 100;
