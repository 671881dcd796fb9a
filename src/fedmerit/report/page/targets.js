// Targets: per run, the first round in which a share of the devices is above a target accuracy.

function showTargets() {
  const slowest = Math.max(...RUNS.map((run) => run.figures.played), 1);
  const boxes = RUNS.map((run) => el("div", { class: "scroll" }, targetTable(run, slowest)));
  $("targets-tables").replaceChildren(...boxes);
}

function targetTable(run, slowest) {
  const rows = run.reached.map((rounds, i) => targetRow(DATA.targets[i], rounds, slowest)).reverse();
  const none = el("tr", el("td", { class: "missed" }, "no round was evaluated yet"));
  const head = rows.length ? targetHead() : null;
  const caption = el("caption", swatch(run), brief(run.label));
  return el("table", { class: "targets" }, caption, head, el("tbody", rows.length ? rows : none));
}

function targetHead() {
  const over = el("th", { colspan: DATA.shares.length, scope: "colgroup" }, "share of devices, in %");
  const shares = DATA.shares.map((share) => el("th", { scope: "col" }, String(Math.round(share * 100))));
  return el("thead", el("tr", el("th", { scope: "col", rowspan: 2 }, "target"), over), el("tr", shares));
}

// More devices never need fewer rounds, so what is not reached is the end of a row: one cell.
function targetRow(target, rounds, slowest) {
  const missing = rounds.filter((round) => round === null).length;
  const cells = rounds.filter((round) => round !== null).map((round) => targetCell(round, slowest));
  if (missing) cells.push(el("td", { class: "missed", colspan: missing }, "not reached"));
  return el("tr", el("th", { scope: "row" }, `> ${Math.round(target * 100)} %`), cells);
}

// From round 1 to the end of the longest run, on colours that keep the number readable.
function targetCell(round, slowest) {
  const strength = 10 + 45 * (1 - (round - 1) / Math.max(slowest - 1, 1));
  const cell = el("td", { class: "reached" }, String(round));
  cell.style.setProperty("--strength", `${strength.toFixed(0)}%`);
  return cell;
}
