// Overview: the title, what is compared, and the results of each row.

const FIGURES = [
  ...[MEASURE.label, "best", "10th percentile", "rounds", "clients", "seed", "recipe", "loss", "sent", "time"],
];
const NOISE = "A difference between single runs can be noise: use several seeds.";

function swatch(row) {
  return el("span", { class: `swatch run-${1 + (row.index % 7)} ${rowDash(row.index)}`, "aria-hidden": "true" });
}

function showHeader() {
  showWarnings();
  const single = RUNS.length === 1;
  const { label, app, recipe } = ROWS[0];
  const by = recipe ? ` (${shorten(recipe, 40)})` : "";
  const one = `Who got what weight in ${shorten(app || label, 40)}${by}, and why`;
  $("title").textContent = single ? one : clean(DATA.verdict?.text ?? comparedText());
  document.title = `${ROWS.map((row) => shorten(row.app || row.label, 24)).slice(0, 6).join(", ")} – fedmerit report`;
  const attack = DATA.attack && !DATA.verdict ? `${clean(DATA.attack)}.` : "";
  const compared = single || !DATA.verdict ? "" : `${comparedText()}.`;
  $("lead").textContent = [taskText(), attack, compared, ROWS.length > 1 ? differText() : "", versionText()].join(" ");
}

// A model that always gives the same answer, or is not better than one, must not pass for a success.
function showWarnings() {
  const some = ROWS.filter((row) => row.constant);
  const text = ({ label, constant, runs }) => {
    const of = runs.length > 1 ? ` (${constant.runs} of ${plural(runs.length, "run")})` : "";
    return el("li", el("strong", `${shorten(label)}${of}: `), clean(constant.text));
  };
  $("warnings").hidden = !some.length;
  $("warnings").replaceChildren(el("ul", some.map(text)));
}

const comparedText = () => `${plural(ROWS.length, "row")} compared in ${plural(RUNS.length, "run")}`;

// "digits, 20 clients, 25 rounds." as far as it is the same in all rows.
function taskText() {
  const taskOf = (row) => row.config.find(([key]) => key === "task.data")?.[2].replaceAll('"', "");
  const same = (value, show) => {
    const values = [...new Set(ROWS.map(value))];
    return values.length === 1 && values[0] ? [show(values[0])] : [];
  };
  const parts = [
    ...same(taskOf, (task) => `Data: ${clean(task)}`),
    ...same(({ clients }) => clients, (count) => plural(count, "client")),
    ...same(({ planned }) => planned, (count) => plural(count, "round")),
  ];
  return parts.length ? `${parts.join(", ")}.` : "";
}

// Settings in words: by key, else by the table that they are in.
const SETTING_WORDS = new Map([
  ["train.lr", "the learning rate"],
  ["train.epochs", "the number of local epochs"],
  ["train.batch", "the batch size"],
  ["run.rounds", "the number of rounds"],
  ["run.seed", "the seed"],
  ["run.fraction", "the share of clients per round"],
  ["task.attack", "the attack"],
  ["task.model", "the model"],
  ["recipe", "the recipe"],
  ["train", "the local training"],
  ["task", "the data"],
  ["run", "the schedule"],
]);

function differText() {
  const table = (key) => key.split(".")[0];
  const word = ({ key }) => SETTING_WORDS.get(key) ?? SETTING_WORDS.get(table(key)) ?? clean(table(key));
  const differ = DATA.differs.config.filter(({ key }) => key !== "run.seed");
  const words = [...new Set((differ.length ? differ : DATA.differs.config).map(word))];
  return words.length ? `The rows differ in ${listText(words)}.` : "The settings of the rows are the same.";
}

function versionText() {
  const named = DATA.differs.environment.filter((key) => key !== "recipe");
  return named.length ? `The environments of the runs differ (${listText(named.map(clean))}).` : "";
}

function showRuns() {
  const first = RUNS.length > ROWS.length ? "row" : "run";
  const numeric = (i) => i > 0 && FIGURES[i - 1] !== "recipe";
  $("runs-table").replaceChildren(table(null, [first, ...FIGURES], ROWS.map(figureCells), numeric));
  const waiting = ROWS.filter((row) => !row.tested).map((row) => `${shorten(row.label)} has no evaluated round yet.`);
  if (DATA.waiting) waiting.push(`${plural(DATA.waiting, "run")} of the study have not started yet.`);
  const seeds = RUNS.length > ROWS.length ? SEEDS : "";
  const single = ROWS.length > 1 && ROWS.some((row) => row.runs.length === 1) ? NOISE : "";
  $("runs-foot").textContent = [...waiting, endText(), seeds, single].join(" ");
}

// At which round rows are compared, also while some of their runs go on.
function endText() {
  const unfinished = ROWS.some((row) => row.unfinished);
  if (RUNS.length === 1 || !unfinished) return "Values are from the last round.";
  if (DATA.end) return `Values are from round ${DATA.end}, the last round that every seed has finished.`;
  const seeds = plural(Math.max(...ROWS.map((row) => row.tested)), "seed");
  return `Values are from the last round of the ${seeds} that every row has finished.`;
}

const SEEDS = "Each row is one setting with several seeds: mean over the seeds, lowest and highest below it.";

// [mean, low, high] over seeds, or [value] of one run.
function rangeCell([mean, low, high], format) {
  const show = (value) => formatted(value, format);
  const span = `${show(low).replace(" %", "")} – ${show(high)}`;
  return low === undefined || low === high ? show(mean) : [show(mean), el("small", span)];
}

// The value of each line at the round at which rows are compared.
function endOf(row, lines) {
  const last = row.curve.round.findLastIndex((round) => round <= (DATA.end ?? Infinity));
  return lines.map((line) => line[last]);
}

function figureCells(row) {
  const end = (name) => known(linesOf(row, { name, at: "" }), (lines) => rangeCell(endOf(row, lines), MEASURE.format));
  return [
    [swatch(row), brief(row.label, 26)],
    el("strong", end("value")),
    known(row.best, bestCell),
    end("p10"),
    roundsCell(row),
    String(row.clients),
    seedsText(row.seeds),
    [known(row.recipe, shorten), el("small", priorityText(row))],
    lossCell(row.losses),
    [`${bytesText(row.costs.bytes_down[0])} down`, el("small", `${bytesText(row.costs.bytes_up[0])} up`)],
    secondsText(row.costs.seconds[0]),
  ];
}

// Training loss of the final model, and the validation loss where there are validation rows.
function lossCell({ training_loss: [training], validation_loss: [validation] }) {
  if (training === null) return "–";
  const second = validation === null ? null : el("small", `${fourText(validation)} validation`);
  return [`${fourText(training)} training`, second];
}

function bestCell({ value, round: [mean, first, last] }) {
  const when = first === undefined || first === last ? `round ${mean}` : `rounds ${first} – ${last}`;
  return [formatted(value[0], MEASURE.format), el("small", when)];
}

// "1, 2, 3", and "1 – 5" where there are more in a row.
function seedsText(seeds) {
  const [first, last] = [seeds[0], lastOf(seeds)];
  const inLine = seeds.length > 2 && seeds.every((seed, i) => seed === first + i);
  return inLine ? `${first} – ${last}` : shorten(seeds.map((seed) => known(seed, String)).join(", "), 20);
}

function priorityText(row) {
  const order = (names) => shorten(names.map((name) => shorten(spelt(name), 28)).join(" > "), 60);
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
