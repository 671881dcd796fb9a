// Overview: the key figures of each run, accuracy over rounds, and rounds to target.

const hidden = new Set(); // "line 0", "band 2": what the legend has switched off

function swatch(index) {
  return el("span", { class: `swatch run-${1 + (index % 7)} ${runDash(index)}`, "aria-hidden": "true" });
}

function showHeader() {
  const task = (run) => run.config.find(([key]) => key === "task.data")?.[2];
  $("title").textContent = RUNS.length === 1 ? "One run" : `${RUNS.length} runs compared`;
  document.title = `${RUNS.map((run) => shorten(run.label, 24)).join(", ")} – fedmerit report`;
  const tasks = [...new Set(RUNS.map(task).filter(Boolean))].map((name) => clean(name.replaceAll('"', "")));
  const keys = DATA.differs.config.map((row) => row.key);
  const differ = RUNS.length === 1 ? "" : keys.length ? ` They differ in ${listText(keys.map(clean))}.` : " Their settings are the same.";
  $("lead").textContent = `${tasks.length ? `Task ${listText(tasks)}.` : ""}${differ}`;
}

function priorityText(run) {
  const [first, ...more] = run.recipe.priorities.map((names) => names.map((name) => shorten(name, 24)).join(" > "));
  return more.length ? `${first} and ${plural(more.length, "other order")}` : first || "–";
}

function roundsCell(run) {
  const { played } = run.figures;
  const open = run.recipe.planned !== null && played < run.recipe.planned;
  return open ? [`${played} of ${run.recipe.planned} `, el("span", { class: "badge" }, "unfinished")] : [String(played)];
}

function figureCells(run) {
  const { figures, recipe } = run;
  const best = figures.best && `${accuracyText(figures.best.accuracy)} (round ${figures.best.round})`;
  return [
    [swatch(run.index), brief(run.label)],
    known(recipe.name, shorten), priorityText(run), known(recipe.normalise, shorten), known(recipe.score, shorten),
    known(recipe.seed, String), roundsCell(run), String(run.names.length),
    el("strong", null, accuracyText(figures.accuracy)), best ?? "–", accuracyText(figures.p10),
    bytesText(figures.bytes_down), bytesText(figures.bytes_up), secondsText(figures.seconds),
  ];
}

function showRuns() {
  const header = ["run", "recipe", "priority", "normalise", "score", "seed", "rounds", "clients", "accuracy", "best",
    "10th percentile", "down", "up", "time"];
  $("runs-table").replaceChildren(table(null, header, RUNS.map(figureCells), (i) => i > 4));
  const waiting = RUNS.filter((run) => !run.rounds.length).map((run) => `${shorten(run.label)} has no round yet.`);
  const noise = RUNS.length > 1 ? "Each line is a single run: a difference between two can be noise until it holds over several seeds." : "";
  $("runs-foot").textContent = [...waiting, "Accuracy and 10th percentile are those of the last evaluated round.", noise].join(" ");
}

function bandTraces(run) {
  const { round, p10, p90 } = run.curve;
  const edge = { x: round, mode: "lines", line: { width: 0 }, hoverinfo: "skip", visible: !hidden.has(`band ${run.index}`) };
  return [{ ...edge, y: p10 }, { ...edge, y: p90, fill: "tonexty", fillcolor: faint(runColour(run.index), 0.16) }];
}

function lineTrace(run) {
  const { round, accuracy, p10, p90 } = run.curve;
  return {
    x: round, y: accuracy, name: flat(run.label), visible: !hidden.has(`line ${run.index}`),
    mode: round.length < 2 ? "markers" : "lines",
    line: { color: runColour(run.index), width: 2.5, dash: runDash(run.index) },
    customdata: round.map((_, i) => `${accuracyText(p10[i])} to ${accuracyText(p90[i])}`),
    hovertemplate: "%{y:.2%}  (clients %{customdata})",
  };
}

function drawAccuracy() {
  const tested = RUNS.filter((run) => run.curve.round.length);
  if (!tested.length) return $("accuracy-plot").replaceChildren(el("p", { class: "empty" }, "No round was evaluated yet."));
  draw($("accuracy-plot"), [...tested.flatMap(bandTraces), ...tested.map(lineTrace)], {
    height: narrow() ? 300 : 400, hovermode: "x unified",
    xaxis: axis({ title: titled("round"), hoverformat: "d", unifiedhovertitle: { text: "round %{x}" } }),
    yaxis: axis({ tickformat: ".0%", title: titled("accuracy"), automargin: true }),
  });
  const last = tested.map((run) => `${shorten(run.label)} ends at ${accuracyText(run.figures.accuracy)}`);
  $("accuracy-plot").setAttribute("aria-label", `Accuracy over rounds: ${listText(last)}`);
}

function toggle(part, run) {
  const key = `${part} ${run.index}`;
  return el("button", { type: "button", "aria-pressed": String(!hidden.has(key)), onclick: (event) => {
    hidden.delete(key) || hidden.add(key);
    event.currentTarget.setAttribute("aria-pressed", String(!hidden.has(key)));
    drawAccuracy();
  } }, part === "line" ? "line" : "10–90 % band", el("span", { class: "unseen" }, ` of ${shorten(run.label)}`));
}

function showLegend() {
  const tested = RUNS.filter((run) => run.curve.round.length);
  if (tested.length > 3) tested.forEach((run) => hidden.add(`band ${run.index}`)); // too many bands hide the lines
  $("accuracy-legend").replaceChildren(...tested.map((run) =>
    el("span", { class: "entry" }, swatch(run.index), brief(run.label), toggle("line", run), toggle("band", run))));
}

// Rounds from 1 to the longest run, on a colour that keeps the number readable.
function targetCell(round, slowest) {
  const strength = 10 + 45 * (1 - (round - 1) / Math.max(slowest - 1, 1));
  const cell = el("td", { class: "reached" }, String(round));
  cell.style.setProperty("--strength", `${strength.toFixed(0)}%`);
  return cell;
}

// More devices never need fewer rounds, so what is not reached is the end of a row: one cell.
function targetRow(target, rounds, slowest) {
  const missing = rounds.filter((round) => round === null).length;
  const cells = rounds.filter((round) => round !== null).map((round) => targetCell(round, slowest));
  if (missing) cells.push(el("td", { class: "missed", colspan: missing }, "not reached"));
  return el("tr", null, el("th", { scope: "row" }, `> ${shareText(target)}`), cells);
}

function targetTable(run, slowest) {
  const caption = el("caption", null, swatch(run.index), brief(run.label));
  if (!run.reached.length) return el("table", { class: "targets" }, caption, el("tbody", null, el("tr", null, el("td", { class: "missed" }, "no round was evaluated yet"))));
  return el("table", { class: "targets" }, caption,
    el("thead", null,
      el("tr", null, el("th", { scope: "col", rowspan: 2 }, "target"), el("th", { colspan: DATA.shares.length, scope: "colgroup" }, "share of devices")),
      el("tr", null, DATA.shares.map((share) => el("th", { scope: "col" }, shareText(share))))),
    el("tbody", null, run.reached.map((rounds, i) => targetRow(DATA.targets[i], rounds, slowest)).reverse()));
}

function showTargets() {
  const slowest = Math.max(...RUNS.map((run) => run.figures.played), 1);
  $("targets-tables").replaceChildren(...RUNS.map((run) => el("div", { class: "scroll" }, targetTable(run, slowest))));
}
