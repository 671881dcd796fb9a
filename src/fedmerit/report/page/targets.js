// Targets: the first round in which a share of the devices is above a target accuracy; median over a row's seeds.

const FIRST =
  "The first round in which at least this share of the devices is above the target accuracy. " +
  "Stronger colour: earlier, on one scale for all.";
const MEDIAN = "Of several seeds the median; below it, where not all of them came there, how many did.";

function showTargets() {
  const slowest = Math.max(...ROWS.map((row) => lastOf(row.costs.played)), 1);
  const some = ROWS.filter((row) => row.tested);
  const rowWise = () => DATA.targets.map((_, i) => byRow(some, i, slowest)).reverse();
  $("targets-how").textContent = some.some((row) => row.tested > 1) ? `${FIRST} ${MEDIAN}` : FIRST;
  $("targets-empty").hidden = some.length > 0;
  $("targets-tables").classList.toggle("wide", some.length > 1);
  $("targets-tables").replaceChildren(...(some.length > 1 ? rowWise() : some.map((row) => byTarget(row, slowest))));
}

// One row: a line per target. Several: a table per target, with a line per row, for those are what is compared.
function byTarget(row, slowest) {
  const lines = row.reached.map((cells, i) => targetLine(`> ${shareText(DATA.targets[i])}`, cells, row, slowest));
  return targetTable([swatch(row), brief(row.label)], "target", lines.reverse());
}

function byRow(rows, target, slowest) {
  const head = (row) => [swatch(row), brief(row.label, narrow() ? 9 : 15)];
  const line = (row) => targetLine(head(row), row.reached[target], row, slowest);
  return targetTable(`above ${shareText(DATA.targets[target])}`, "row", rows.map(line));
}

function targetTable(caption, corner, lines) {
  const over = el("th", { colspan: DATA.shares.length, scope: "colgroup" }, "share of devices, in %");
  const shares = DATA.shares.map((share) => el("th", { scope: "col" }, shareText(share).replace(" %", "")));
  const head = el("thead", el("tr", el("th", { scope: "col", rowspan: 2 }, corner), over), el("tr", shares));
  const shown = el("table", { class: "targets" }, el("caption", caption), head, el("tbody", lines));
  return el("div", { class: "scroll" }, shown);
}

// More devices never need fewer rounds, so what no seed has reached is the end of a line: one cell.
function targetLine(head, cells, row, slowest) {
  const missing = cells.filter(([, count]) => !count).length;
  const shown = cells.filter(([, count]) => count).map((cell) => targetCell(cell, row, slowest));
  if (missing) shown.push(el("td", { class: "missed", colspan: missing }, missing > 2 ? "not reached" : "–"));
  return el("tr", el("th", { scope: "row" }, head), shown);
}

// From round 1 to the end of the longest run, on colours that keep the number readable.
function targetCell([round, count], row, slowest) {
  const all = count === row.tested;
  const share = all ? null : el("small", `${count}/${row.tested}`);
  if (round === null) return el("td", { class: "missed", title: "fewer than half of the seeds" }, "–", share);
  const strength = 10 + 45 * (1 - (round - 1) / Math.max(slowest - 1, 1));
  const cell = el("td", { class: "reached" }, numberText(round), share);
  cell.style.setProperty("--strength", `${strength.toFixed(0)}%`);
  return cell;
}
