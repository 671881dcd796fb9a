// Verdict: the paired differences behind the title, a dot for each seed.

const SVG = "http://www.w3.org/2000/svg";
const drawn = (tag, attributes, ...parts) => el(document.createElementNS(SVG, tag), attributes, ...parts);
const LINE = { width: 300, height: 26, edge: 8 };

const DECIMALS = MEASURE.format ? 2 : 4;
const pointsText = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(DECIMALS)}`;

// From the least to the largest of all differences and interval ends, with 0 in between.
function verdictScale(rows) {
  const ends = [0, ...rows.flatMap(({ points, low, high }) => [...points, low, high])];
  const [low, high] = [Math.min(...ends), Math.max(...ends)];
  const span = high - low || 1;
  return (value) => LINE.edge + ((LINE.width - 2 * LINE.edge) * (value - low)) / span;
}

function differenceLine({ row, points, difference, low, high }, x) {
  const middle = LINE.height / 2;
  const size = { viewBox: `0 0 ${LINE.width} ${LINE.height}` };
  const colour = { class: `run-${1 + (row % 7)}` };
  return drawn(
    "svg",
    { ...size, class: "paired", "aria-hidden": "true" },
    drawn("line", { x1: x(0), x2: x(0), y1: 0, y2: LINE.height, class: "zero" }),
    drawn("line", { x1: x(low), x2: x(high), y1: middle, y2: middle, ...colour }),
    points.map((value) => drawn("circle", { cx: x(value), cy: middle, r: 3, class: "seed" })),
    drawn("path", { d: `M${x(difference)} ${middle - 7}l5 7l-5 7l-5 -7z`, ...colour }),
  );
}

function showVerdict() {
  const verdict = DATA.verdict;
  $("verdict").hidden = !verdict;
  document.querySelector('nav a[href="#verdict"]').parentElement.hidden = !verdict;
  if (!verdict) return;
  const baseline = shorten(ROWS[verdict.baseline].label);
  const level = `${Math.round(verdict.level * 100)} %`;
  const x = verdictScale(verdict.rows);
  const lines = verdict.rows.map((line) => [
    [swatch(ROWS[line.row]), brief(ROWS[line.row].label, 26)],
    [line.verdict, el("small", plural(line.seeds.length, "seed"))],
    [el("strong", pointsText(line.difference)), el("small", `[${pointsText(line.low)}, ${pointsText(line.high)}]`)],
    differenceLine(line, x),
  ]);
  const unit = MEASURE.format ? "points" : MEASURE.label;
  const header = ["row", "verdict", [unit, el("small", `${level} interval`)], "difference of each seed"];
  const caption = `Final ${MEASURE.label} compared with ${baseline} (dashed line)`;
  $("verdict-table").replaceChildren(table(caption, header, lines, (i) => i === 2));
  const leans = verdict.rows.some((line) => line.verdict.startsWith("leans"));
  $("verdict-how").textContent =
    (MEASURE.format ? `One point is one percentage point of ${MEASURE.label}. ` : "") +
    (MEASURE.lower ? "Lower is better. " : "") +
    "With the same seed, all rows share the data, the first model and " +
    `the selected clients. Dots are seeds, the diamond is their mean, the line its ${level} interval.` +
    (leans ? " A row leans when its interval excludes 0 but p, corrected for the number of rows, is above 0.05." : "");
}
