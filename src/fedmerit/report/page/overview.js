// Overview: what is compared, and the key figures of each row.

const FIGURES = ["accuracy", "best", "10th percentile", "rounds", "clients", "seed", "recipe", "score", "sent", "time"];
const WORDS = new Set(["recipe", "score"]); // all other columns are numbers
const NOISE = "One seed is a single run: a difference between two can be noise until it holds over several seeds.";

function swatch(row) {
  return el("span", { class: `swatch run-${1 + (row.index % 7)} ${rowDash(row.index)}`, "aria-hidden": "true" });
}

function showHeader() {
  const taskOf = (row) => row.config.find(([key]) => key === "task.data")?.[2].replaceAll('"', "");
  const tasks = [...new Set(ROWS.map(taskOf).filter(Boolean))].map(clean);
  const one = `Run ${shorten(ROWS[0].label, 40)}`;
  const many = `${plural(RUNS.length, "run")} compared`;
  const what = RUNS.length === 1 ? one : ROWS.length === RUNS.length ? many : studyTitle();
  $("title").textContent = DATA.verdict ? clean(DATA.verdict.text) : what;
  document.title = `${ROWS.map((row) => shorten(row.label, 24)).slice(0, 6).join(", ")} – fedmerit report`;
  const counted = DATA.verdict ? `${what}.` : "";
  const task = tasks.length ? `Task ${listText(tasks)}.` : "";
  const about = [counted, task, ROWS.length > 1 ? differText() : "", versionText()];
  $("lead").textContent = about.join(" ");
}

const studyTitle = () => `${plural(RUNS.length, "run")} in ${plural(ROWS.length, "row")}`;

function differText() {
  const keys = DATA.differs.config.map((row) => clean(row.key));
  return keys.length ? `They differ in ${listText(keys)}.` : "Their settings are the same.";
}

function versionText() {
  const named = DATA.differs.environment.filter((key) => key !== "recipe");
  return named.length ? `They were made under different ${listText(named.map(clean))}, see the environment below.` : "";
}

function showRuns() {
  const first = RUNS.length > ROWS.length ? "row" : "run";
  const numeric = (i) => i > 0 && !WORDS.has(FIGURES[i - 1]);
  $("runs-table").replaceChildren(table(null, [first, ...FIGURES], ROWS.map(figureCells), numeric));
  const waiting = ROWS.filter((row) => !row.tested).map((row) => `${shorten(row.label)} has no evaluated round yet.`);
  if (DATA.waiting) waiting.push(`${plural(DATA.waiting, "run")} that the study asks for have not begun yet.`);
  const last = "Accuracy and 10th percentile are those of the last evaluated round";
  const seeds = RUNS.length > ROWS.length ? `${SEEDS} ` : "";
  const which = seeds ? ", in a row of the last that all its seeds have." : ".";
  const single = ROWS.length > 1 && ROWS.some((row) => row.runs.length === 1) ? NOISE : "";
  $("runs-foot").textContent = `${waiting.join(" ")} ${seeds}${last}${which} ${single}`;
}

const SEEDS = "A row is one setting under several seeds; figures are means over them, with the lowest and the highest.";

// [mean, low, high] over seeds, or [value] of one run.
function rangeCell([mean, low, high], format) {
  const show = (value) => formatted(value, format);
  const span = `${show(low).replace(" %", "")} – ${show(high)}`;
  return low === undefined || low === high ? show(mean) : [show(mean), el("small", span)];
}

const endOf = (lines) => lines.map(lastOf);

function figureCells(row) {
  const end = (name) => known(linesOf(row, { name, at: "" }), (lines) => rangeCell(endOf(lines), "%"));
  return [
    [swatch(row), brief(row.label, 26)],
    el("strong", end("accuracy")),
    known(row.best, bestCell),
    end("p10"),
    roundsCell(row),
    String(row.clients),
    seedsText(row.seeds),
    [known(row.recipe, shorten), el("small", priorityText(row))],
    [known(row.score, scoreName), el("small", `normalise ${known(row.normalise, shorten)}`)],
    [`${bytesText(row.costs.bytes_down[0])} down`, el("small", `${bytesText(row.costs.bytes_up[0])} up`)],
    secondsText(row.costs.seconds[0]),
  ];
}

const scoreName = (score) => brief(score.replace("()", ""), 26);

function bestCell({ accuracy, round: [mean, first, last] }) {
  const when = first === undefined || first === last ? `round ${mean}` : `rounds ${first} – ${last}`;
  return [accuracyText(accuracy[0]), el("small", when)];
}

// "1, 2, 3", and "1 – 5" where there are more in a row.
function seedsText(seeds) {
  const [first, last] = [seeds[0], lastOf(seeds)];
  const inLine = seeds.length > 2 && seeds.every((seed, i) => seed === first + i);
  return inLine ? `${first} – ${last}` : shorten(seeds.map((seed) => known(seed, String)).join(", "), 20);
}

function priorityText(row) {
  const order = (names) => shorten(names.map((name) => shorten(name, 24)).join(" > "), 44);
  const [first, ...more] = row.priorities.map(order);
  return more.length ? `${first} and ${plural(more.length, "other order")}` : first || "–";
}

function roundsCell({ costs, planned, unfinished, runs }) {
  const [mean, low, high] = costs.played;
  if (!unfinished) return String(high ?? mean);
  const played = high === undefined || low === high ? mean : `${low} – ${high}`;
  const which = runs.length > 1 ? `${unfinished} of ${runs.length} unfinished` : "unfinished";
  return [`${played} of ${planned}`, el("span", { class: "badge" }, which)];
}
