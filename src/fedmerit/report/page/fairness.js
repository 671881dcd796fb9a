// Fairness: the accuracy of the worst clients, the spread over clients, and the audits of the model.

const SPREAD = [
  { ...mark("worst", "worst tenth", "worst tenth of the clients"), axis: `mean ${MEASURE.label} of the worst tenth` },
  { ...mark("spread", "standard deviation", "spread over clients"), axis: "standard deviation over clients" },
];
const WHERE = new Map([
  ["server", "at the server"],
  ["median", "at the median client"],
  ["worst", "at the worst client"],
]);

// Every audit that some row has.
function auditMeasures() {
  const found = new Map();
  for (const { name, at } of ROWS.flatMap((row) => row.curve.measures)) {
    const title = `${clean(name)} ${WHERE.get(at)}`;
    const measure = { name, at, title: `audit: ${title}`, axis: flat(title, 60), format: "" };
    if (at) found.set(JSON.stringify([name, at]), measure);
  }
  return [...found.values()];
}

const AUDITED = "Audits measure the model: 1 is best, except for errors and losses, where 0 is best.";

function showFairness() {
  const audits = auditMeasures();
  $("fairness-how").textContent = audits.length ? AUDITED : "";
  curvesPanel("fairness", [...audits, ...SPREAD]); // audits were asked for: they come first
  showFinal();
}

function showFinal() {
  const audits = auditMeasures();
  const some = ROWS.filter((row) => row.final.length);
  $("final").hidden = !some.length;
  chart("final-plot", () => drawFinal(some));
  refresh("final-plot");
  const tables = [spreadTable(some), ...(audits.length ? [auditTable(some, audits)] : [])];
  $("fairness-tables").replaceChildren(...(some.length ? tables : []).map(([name, found]) => scrollBox(name, found)));
}

// The clients' values from the lowest to the highest: the flatter the line, the fairer.
function drawFinal(rows) {
  const line = (row) => ({
    x: [...row.final, 0].map((_, i) => i / row.final.length), // from edge to edge of each step
    y: [...row.final, lastOf(row.final)],
    name: flat(row.label),
    mode: "lines",
    line: { color: rowColour(row.index), width: 2.5, dash: rowDash(row.index), shape: "hv" },
    hovertemplate: MEASURE.format ? "%{y:.2%}" : "%{y:.4g}",
  });
  const places = { range: [0, 1], tickvals: [0, 0.2, 0.4, 0.6, 0.8, 1], tickformat: ".0%" };
  const share = { ...places, title: titled(`share of the clients, sorted by ${MEASURE.label}`) };
  const hover = { unifiedhovertitle: { text: "%{x:.0%} of the clients are at or below" } };
  const height = MEASURE.format ? percentAxis(rows.flatMap((row) => row.final)) : { tickformat: "~g" };
  draw($("final-plot"), rows.map(line), {
    height: 300,
    margin: { l: 8, r: 24, t: 8, b: 8 }, // room for half of the last tick's text
    hovermode: "x unified",
    xaxis: axis({ ...share, ...hover, automargin: true }),
    yaxis: axis({ ...height, title: titled(`local ${MEASURE.label}`), automargin: true }),
  });
}

function spreadTable(rows) {
  const value = (row, measure) => known(linesOf(row, measure), (lines) => rangeCell(endOf(row, lines), measure.format));
  const shown = [...SPREAD, ...ACCURACY.slice(1)];
  const lines = rows.map((row) => [[swatch(row), brief(row.label)], ...shown.map((measure) => value(row, measure))]);
  const caption = `Local ${MEASURE.label} of the clients`;
  return [caption, table(caption, ["row", ...shown.map(({ short }) => short)], lines, (i) => i > 0)];
}

// A line per row and objective: at the server, at the median and at the worst client.
function auditTable(rows, audits) {
  const names = [...new Set(audits.map(({ name }) => name))];
  const value = (row, name, at) => known(linesOf(row, { name, at }), (lines) => rangeCell(endOf(row, lines), ""));
  const line = (row, name) => [
    [swatch(row), brief(row.label)],
    brief(name, 32),
    ...[...WHERE.keys()].map((at) => value(row, name, at)),
  ];
  const told = (row, name) => [...WHERE.keys()].some((at) => linesOf(row, { name, at }));
  const lines = rows.flatMap((row) => names.filter((name) => told(row, name)).map((name) => line(row, name)));
  const caption = "Audits";
  return [caption, table(caption, ["row", "objective", ...WHERE.values()], lines, (i) => i > 1)];
}
