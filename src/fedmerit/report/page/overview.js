// Overview: what is compared, and the key figures of each run.

const FIGURES = ["run", "recipe", "priority", "normalise", "score", "seed", "rounds", "clients"].concat([
  "accuracy",
  "best",
  "10th percentile",
  "down",
  "up",
  "time",
]);
const NOISE = "Each line is a single run: a difference between two can be noise until it holds over several seeds.";

function swatch(run) {
  return el("span", { class: `swatch run-${1 + (run.index % 7)} ${runDash(run.index)}`, "aria-hidden": "true" });
}

function showHeader() {
  const one = RUNS.length === 1;
  const task = (run) => run.config.find(([key]) => key === "task.data")?.[2].replaceAll('"', "");
  const tasks = [...new Set(RUNS.map(task).filter(Boolean))].map(clean);
  $("title").textContent = one ? `Run ${shorten(RUNS[0].label, 40)}` : `${RUNS.length} runs compared`;
  document.title = `${RUNS.map((run) => shorten(run.label, 24)).join(", ")} – fedmerit report`;
  $("lead").textContent = `${tasks.length ? `Task ${listText(tasks)}.` : ""} ${one ? "" : differText()}`;
}

function differText() {
  const keys = DATA.differs.config.map((row) => clean(row.key));
  return keys.length ? `They differ in ${listText(keys)}.` : "Their settings are the same.";
}

function showRuns() {
  $("runs-table").replaceChildren(table(null, FIGURES, RUNS.map(figureCells), (i) => i > 4));
  const waiting = RUNS.filter((run) => !run.rounds.length).map((run) => `${shorten(run.label)} has no round yet.`);
  const last = "Accuracy and 10th percentile are those of the last evaluated round.";
  $("runs-foot").textContent = [...waiting, last, RUNS.length > 1 ? NOISE : ""].join(" ");
}

function figureCells(run) {
  const { figures, recipe } = run;
  return [
    [swatch(run), brief(run.label)],
    known(recipe.name, shorten),
    priorityText(run),
    known(recipe.normalise, shorten),
    known(recipe.score, shorten),
    known(recipe.seed, String),
    roundsCell(run),
    String(run.names.length),
    el("strong", accuracyText(figures.accuracy)),
    known(figures.best, ({ accuracy, round }) => [accuracyText(accuracy), el("small", `round ${round}`)]),
    accuracyText(figures.p10),
    bytesText(figures.bytes_down),
    bytesText(figures.bytes_up),
    secondsText(figures.seconds),
  ];
}

function priorityText(run) {
  const [first, ...more] = run.recipe.priorities.map((names) => names.map((name) => shorten(name, 24)).join(" > "));
  return more.length ? `${first} and ${plural(more.length, "other order")}` : first || "–";
}

function roundsCell({ figures: { played }, recipe: { planned } }) {
  if (planned === null || played >= planned) return String(played);
  return [`${played} of ${planned} `, el("span", { class: "badge" }, "unfinished")];
}
