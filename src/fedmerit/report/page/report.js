// The page: what is chosen, who must hear of it, and the first showing of everything.

const state = { run: 0, round: 0, client: 0 };
let turn = 0; // of choices made while a run is still being read the last one counts

// Choose a run, round or client; what the run does not have falls back to its last round and heaviest client.
async function choose(wanted) {
  turn += 1;
  const mine = turn;
  const run = await unfold(RUNS[wanted.run ?? state.run]);
  if (mine !== turn) return;
  const another = run.index !== state.run;
  Object.assign(state, wanted);
  if (!run.places.has(state.round)) state.round = lastWeighed(run);
  if (!(state.client in run.names)) state.client = rowsOf(run, state.round)[0]?.id ?? 0;
  keepAddress();
  if (another) showRun();
  else showChoice();
  AFTER_CHOICE.forEach((show) => show());
}
const AFTER_CHOICE = []; // what else must hear of it

// All that belongs to the chosen run.
function showRun() {
  fillSelects();
  const panels = [showWeights, showExplanation, showSearch, showGroups];
  [...panels, showSuspects, showData, showNotes].forEach((show) => show());
}

// What changes when another round or client of the same run is chosen.
function showChoice() {
  const run = RUNS[state.run];
  fillSelects();
  moveOutline("weights-plot", weightOrder(run));
  showExplanation();
  showTried();
  if (run.search && isDrawn("search-plot")) Plotly.relayout($("search-plot"), { shapes: roundBand() });
  if (run.grouped) moveOutline("groups-plot", groupOrder(run));
  sayGroup();
}

function lastWeighed(run) {
  const numbers = numbersOf(run);
  return numbers.findLast((_, place) => idsOf(run, place).length) ?? lastOf(numbers) ?? 0;
}

const OF_ONE_RUN = ["weights", "explain", "search", "groups", "suspects", "table", "notes"];
const RUN_SELECTS = OF_ONE_RUN.map((panel) => $(`${panel}-run`));

function fillSelects() {
  const run = RUNS[state.run];
  for (const select of RUN_SELECTS) select.value = String(state.run);
  $("explain-round").replaceChildren(...numbersOf(run).map((round) => option(round, String(round), state.round)));
  $("explain-client").replaceChildren(...clientGroups(run));
  $("explain-round").disabled = $("explain-client").disabled = !numbersOf(run).length;
}

// Every panel about one run has the same choice; with one run there is nothing to choose.
function fillRunSelects() {
  for (const select of RUN_SELECTS) {
    select.replaceChildren(...SHOWN.map(({ label, index }) => option(index, shorten(label, 40), state.run)));
    select.closest("label").hidden = SHOWN.length === 1;
    select.addEventListener("change", () => choose({ run: Number(select.value) }));
  }
  const missing = RUNS.length - SHOWN.length;
  $("detail-note").hidden = !missing;
  $("detail-note").textContent =
    `This file holds the weights of ${SHOWN.length} of ${RUNS.length} runs. ` +
    "`fedmerit report` with the folder of one run shows any other.";
}

function clientGroups(run) {
  const [rows, out] = [rowsOf(run, state.round), leftOut(run, state.round).map(({ client }) => client)];
  const seen = new Set([...rows.map(({ id }) => id), ...out]);
  const rest = run.names.map((_, id) => id).filter((id) => !seen.has(id));
  const client = (id, more = "") => option(id, shorten(run.names[id], 28) + more, state.client);
  const groups = [
    ["weighted, highest first", rows.map(({ id, weight }) => client(id, `: ${weightText(weight)}`))],
    ["left out", out.map((id) => client(id))],
    ["not selected", rest.map((id) => client(id))],
  ];
  return groups.filter(([, options]) => options.length).map(([label, options]) => el("optgroup", { label }, options));
}

// Bring a part into view, unless it is there already.
function reveal(part) {
  const { top } = part.getBoundingClientRect();
  if (top >= 0 && top < window.innerHeight * 0.5) return;
  const calm = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
  part.scrollIntoView({ behavior: calm ? "auto" : "smooth" });
}

function listen() {
  const chosen = (id) => Number($(id).value);
  $("explain-round").addEventListener("change", () => choose({ round: chosen("explain-round") }));
  $("explain-client").addEventListener("change", () => choose({ client: chosen("explain-client") }));
  $("weights-order").addEventListener("change", () => refresh("weights-plot"));
  $("groups-order").addEventListener("change", () => refresh("groups-plot"));
  $("explain-all").addEventListener("toggle", () => $("explain-all").open && showRound());
  window.addEventListener("scroll", hideTip, { passive: true });
}

// A panel that no run has anything for is not there, nor is the way to it.
function hidePanels() {
  const tables = new Map([["tuning", DATA.tuned], ["federation", DATA.worth], ["targets", DATA.targets]]);
  const shown = (panel) => tables.get(panel)?.length > 0 || SHOWN.some((run) => run.has.includes(panel));
  for (const panel of ["search", "groups", "table", "targets", "tuning", "federation"]) {
    $(panel).hidden = !shown(panel);
    document.querySelector(`nav a[href="#${panel}"]`).parentElement.hidden = !shown(panel);
  }
}

const unfolded = () => Boolean(RUNS[state.run].names);
chart("weights-plot", drawWeights, listenToWeights, unfolded);
chart("explain-plot", drawBars, listenToBars, unfolded);
chart("search-plot", drawSearch, listenToSearch, unfolded);
chart("groups-plot", drawGroups, listenToGroups, unfolded);

// The first run of the row that the title speaks of, or of the baseline where that row has no weights to explain;
// without a verdict, the first that has a round.
function firstRun() {
  const begun = SHOWN.filter((run) => run.played);
  const { best, baseline } = DATA.verdict ?? {};
  const wanted = ["standalone", "pooled"].includes(ROWS[best]?.recipe) ? baseline : best;
  return begun.find(({ row }) => row === wanted) ?? begun[0] ?? SHOWN[0];
}

// First what all runs have in common and the charts in sight; then the details of the first run, which may be large.
async function start() {
  const tables = [showVerdict, showRuns, showTargets, showCounts, showTuning, showSettings, showEnvironment];
  [showHeader, ...tables, showGlossary, hidePanels].forEach((show) => show());
  showAccuracy();
  showFairness();
  watchTheme();
  const reached = (stage) => (document.documentElement.dataset[stage] = Math.round(performance.now())); // in ms
  reached("shown");
  const wanted = addressed();
  const first = wanted ? RUNS[wanted.run] : firstRun();
  state.run = first.index;
  await startCharts();
  reached("drawn");
  await unfold(first);
  state.round = first.places.has(wanted?.round) ? wanted.round : lastWeighed(first);
  state.client = first.names[wanted?.client] === undefined ? (rowsOf(first, state.round)[0]?.id ?? 0) : wanted.client;
  if (attackersOf(first).size) $("weights-order").value = "attack";
  fillRunSelects();
  showRun();
  listen();
  listenToLinks();
  if (wanted) {
    $("weights").scrollIntoView();
    openDrawer();
  }
  reached("ready");
}

await start();
