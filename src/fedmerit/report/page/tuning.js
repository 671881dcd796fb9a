// Tuning: the grid of each row, what was chosen on which seeds, and how every point came out.

function showTuning() {
  $("tuning-tables").replaceChildren(...DATA.tuned.flatMap(tunedFolder));
}

function tunedFolder({ rows, untuned, reported }) {
  const lines = rows.flatMap((row) => row.keys.map((key, i) => keyCells(row, key, i)));
  const grids = table(null, ["row", "key", "grid", "chosen", "tuned on seeds"], lines);
  const edges = rows.flatMap(({ row, edges }) => edges.map((note) => `${shorten(row)}: ${clean(note)}.`));
  const list = edges.length ? listOf(edges) : null;
  const box = scrollBox("The grid of each row and what was chosen", grids);
  return [box, list, seedsFoot(untuned, reported), ...rows.map(pointsOf)].filter(Boolean);
}

const listOf = (texts) =>
  el(
    "ul",
    texts.map((text) => el("li", text)),
  );

function seedsFoot(untuned, reported) {
  const seeds = reported.length ? `No figure above is of a tuning seed: they report on ${seedsText(reported)}. ` : "";
  const others = untuned.length ? `Not tuned: ${listText(untuned.map((row) => shorten(row)))}.` : "";
  return seeds || others ? el("p", { class: "foot" }, seeds + others) : null;
}

function keyCells({ row, seeds, about }, { key, grid, chosen, edge }, place) {
  const shown = ROWS.find(({ label }) => label === row);
  const name = place ? "" : [shown ? swatch(shown) : "", brief(row, 26)];
  const badge = edge ? el("span", { class: "badge" }, `${edge} of its grid`) : null;
  const values = [known(chosen, (value) => el("strong", shorten(value))), badge].filter(Boolean);
  const on = place ? "" : [seedsText(seeds), el("small", `by ${clean(about)}`)];
  return [name, el("code", clean(key)), grid.map((value) => shorten(value)).join(", "), values, on];
}

// Every point, the best first, and what to know of them.
function pointsOf({ row, by, points, notes }) {
  const header = ["point", "seeds", clean(by), "difference", "95 % interval", "verdict"];
  const numeric = (i) => i > 0 && i < 5;
  const said = listOf(notes.map(clean));
  const all = scrollBox(`The points of ${clean(row)}`, table(null, header, points.map(pointCells), numeric));
  return el("details", el("summary", `All points of ${shorten(row)}`), all, said);
}

function pointCells({ point, seeds, mean, censored, difference, low, high, verdict }) {
  const signed = (value) => known(value, (number) => (number > 0 ? "+" : "") + numberText(number, 4));
  const range = known(low, () => `${signed(low)} to ${signed(high)}`);
  const effect = verdict === "chosen" ? ["", ""] : [signed(difference), range];
  return [brief(point, 60), String(seeds), (censored ? ">" : "") + numberText(mean), ...effect, verdict];
}
