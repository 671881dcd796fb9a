// The page: what is chosen, who must hear of it, and the first drawing of everything.

const state = { run: 0, round: 0, client: 0 };

// Choose a run, round or client; what the run does not have falls back to its last round and first client.
function choose(wanted) {
  const before = state.run;
  Object.assign(state, wanted);
  const run = RUNS[state.run];
  if (!run.byRound.has(state.round)) state.round = lastWeighed(run);
  if (!(state.client in run.names)) state.client = 0;
  if (state.run === before) moveOutline();
  else drawWeights();
  fillSelects();
  showExplanation();
  listenToBars();
}

function lastWeighed(run) {
  const weighed = run.rounds.filter(({ ids }) => ids.length);
  return (weighed[weighed.length - 1] ?? run.rounds[run.rounds.length - 1])?.round ?? 0;
}

const option = (value, text, chosen) => el("option", { value, selected: value === chosen }, text);

function fillSelects() {
  const run = RUNS[state.run];
  const runs = () => RUNS.map(({ label, index }) => option(index, shorten(label, 40), state.run));
  $("weights-run").replaceChildren(...runs());
  $("explain-run").replaceChildren(...runs());
  $("explain-round").replaceChildren(...run.rounds.map(({ round }) => option(round, String(round), state.round)));
  $("explain-client").replaceChildren(...clientGroups(run));
  $("explain-round").disabled = $("explain-client").disabled = !run.rounds.length;
}

function clientGroups(run) {
  const [rows, out] = [rowsOf(run, state.round), leftOut(run, state.round).map(({ client }) => client)];
  const seen = new Set([...rows.map(({ id }) => id), ...out]);
  const rest = run.names.map((_, id) => id).filter((id) => !seen.has(id));
  const client = (id, more = "") => option(id, shorten(run.names[id], 28) + more, state.client);
  const groups = [
    ["weighed, heaviest first", rows.map(({ id, weight }) => client(id, `: ${weightText(weight)}`))],
    ["left out", out.map((id) => client(id))],
    ["not drawn", rest.map((id) => client(id))],
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
  $("weights-run").addEventListener("change", () => choose({ run: chosen("weights-run") }));
  $("explain-run").addEventListener("change", () => choose({ run: chosen("explain-run") }));
  $("explain-round").addEventListener("change", () => choose({ round: chosen("explain-round") }));
  $("explain-client").addEventListener("change", () => choose({ client: chosen("explain-client") }));
  $("weights-order").addEventListener("change", drawWeights);
  $("explain-all").addEventListener("toggle", () => {
    if ($("explain-all").open) showRound();
  });
  $("weights-plot").addEventListener("keydown", walk);
  window.addEventListener("scroll", hideTip, { passive: true });
}

const DRAWINGS = [drawAccuracy, drawWeights, listenToWeights, showExplanation, listenToBars];

const redraw = () => DRAWINGS.forEach((drawing) => drawing());

function start() {
  [showHeader, showRuns, showLegend, showTargets, showNotes, showSettings, showEnvironment].forEach((show) => show());
  const first = RUNS.find((run) => run.rounds.length) ?? RUNS[0];
  Object.assign(state, { run: first.index, round: lastWeighed(first) });
  state.client = rowsOf(first, state.round)[0]?.id ?? 0;
  fillSelects();
  showExplanation();
  listen();
  const drawn = () => (document.documentElement.dataset.drawn = ""); // for whoever waits for the charts
  requestAnimationFrame(() => inTurn(startPlotly, ...DRAWINGS, () => watchTheme(redraw), drawn));
}

start();
