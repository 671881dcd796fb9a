// Targets: the first round in which a share of the clients is better than a target; median over a row's seeds.

const SIDE = MEASURE.lower ? "below" : "above";
const FIRST = `The first round in which at least this share of the clients is ${SIDE} the target ${MEASURE.label}.`;
const targetText = (target) => (MEASURE.format ? shareText(target) : numberText(target));
const MEDIAN = "Median over the seeds; below it the number of seeds that reached the target, if not all did.";

function showTargets() {
  const slowest = Math.max(...ROWS.map((row) => lastOf(row.costs.played)), 1);
  const some = ROWS.filter((row) => row.tested);
  const all = some.length ? DATA.targets.map((_, i) => i).reverse() : [];
  const told = all.filter((target) => !isTrivial(some, target));
  const byRows = () => told.map((target) => byRow(some, target, slowest));
  const tables = () => (some.length > 1 ? byRows() : [byTarget(some[0], told, slowest)]);
  const how = some.some((row) => row.tested > 1) ? `${FIRST} ${MEDIAN}` : FIRST;
  const same = all.filter((target) => !told.includes(target)).map((target) => sameText(some[0], target));
  $("targets-how").textContent = [told.length ? how : "", ...same].join(" ");
  $("targets-empty").hidden = some.length > 0;
  $("targets-tables").classList.toggle("wide", some.length > 1);
  $("targets-tables").replaceChildren(...(told.length ? tables() : []));
}

// A target that all rows reach in the same round with all shares of clients, or never, needs no table.
function isTrivial(rows, target) {
  const cells = rows.flatMap(({ reached, tested }) => reached[target].map(([round, count]) => [round, tested - count]));
  const [, missing] = cells[0];
  const same = cells.every((cell) => String(cell) === String(cells[0]));
  return same && (!missing || rows.every((row) => !row.reached[target][0][1]));
}

function sameText(row, target) {
  const [[round, count], goal] = [row.reached[target][0], targetText(DATA.targets[target])];
  const never = `No run has ${shareText(DATA.shares[0])} of its clients ${SIDE} ${goal}.`;
  return count ? `In every run, all clients are ${SIDE} ${goal} in round ${round}.` : never;
}

// One row: a line per target. Several: a table per target, with a line per row, for those are what is compared.
function byTarget(row, targets, slowest) {
  const sign = MEASURE.lower ? "<" : ">";
  const line = (i) => targetLine(`${sign} ${targetText(DATA.targets[i])}`, row.reached[i], row, slowest);
  return targetTable([swatch(row), brief(row.label)], "target", targets.map(line));
}

function byRow(rows, target, slowest) {
  const head = (row) => [swatch(row), brief(row.label, narrow() ? 26 : 15)];
  const line = (row) => targetLine(head(row), row.reached[target], row, slowest);
  return targetTable(`${SIDE} ${targetText(DATA.targets[target])}`, "row", rows.map(line));
}

function targetTable(caption, corner, lines) {
  const over = el("th", { colspan: DATA.shares.length, scope: "colgroup" }, "share of clients, in %");
  const shares = DATA.shares.map((share) => el("th", { scope: "col" }, shareText(share).replace(" %", "")));
  const head = el("thead", el("tr", el("th", { scope: "col", rowspan: 2 }, corner), over), el("tr", shares));
  const shown = el("table", { class: "targets" }, el("caption", caption), head, el("tbody", lines));
  return el("div", { class: "scroll" }, shown);
}

// More clients never need fewer rounds, so shares that no seed has reached are the end of a line: one cell.
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
