// The page: what is chosen, who must hear of it, and the first drawing of everything.

const state = { run: 0, round: 0, client: 0 };

// Choose a run, round or client; what does not exist falls back to the last round and its heaviest client.
function choose(wanted) {
  const before = { ...state };
  Object.assign(state, Object.fromEntries(Object.entries(wanted).filter(([, value]) => value !== undefined)));
  const run = RUNS[state.run];
  if (!run.byRound.has(state.round)) state.round = lastWeighed(run);
  if (!(state.client in run.names)) state.client = 0;
  if (state.run !== before.run) drawWeights();
  else moveOutline();
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
  for (const id of ["weights-run", "explain-run"]) $(id).replaceChildren(...RUNS.map(({ label }, i) => option(i, shorten(label, 40), state.run)));
  $("explain-round").replaceChildren(...run.rounds.map(({ round }) => option(round, String(round), state.round)));
  const [rows, out] = [rowsOf(run, state.round), leftOut(run, state.round)];
  const seen = new Set([...rows.map(({ id }) => id), ...out.map(({ client }) => client)]);
  const name = (id) => shorten(run.names[id], 28);
  $("explain-client").replaceChildren(
    clientGroup("weighed, heaviest first", rows.map((row) => option(row.id, `${name(row.id)}: ${weightText(row.weight)}`, state.client))),
    clientGroup("left out", out.map(({ client }) => option(client, name(client), state.client))),
    clientGroup("not drawn", run.names.map((_, id) => id).filter((id) => !seen.has(id)).map((id) => option(id, name(id), state.client))));
  for (const id of ["explain-round", "explain-client"]) $(id).disabled = !run.rounds.length;
}

const clientGroup = (label, options) => (options.length ? el("optgroup", { label }, options) : "");

// Bring a part into view, unless it is there already.
function reveal(part) {
  const { top } = part.getBoundingClientRect();
  if (top >= 0 && top < window.innerHeight * 0.5) return;
  const calm = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
  part.scrollIntoView({ behavior: calm ? "auto" : "smooth" });
}

function listen() {
  const chosen = (id) => Number($(id).value);
  for (const id of ["weights-run", "explain-run"]) $(id).addEventListener("change", () => choose({ run: chosen(id) }));
  $("explain-round").addEventListener("change", () => choose({ round: chosen("explain-round") }));
  $("explain-client").addEventListener("change", () => choose({ client: chosen("explain-client") }));
  $("weights-order").addEventListener("change", drawWeights);
  $("explain-all").addEventListener("toggle", () => { if ($("explain-all").open) showRound(); });
  $("weights-plot").addEventListener("keydown", walk);
  window.addEventListener("scroll", hideTip, { passive: true });
}

function redraw() {
  drawAccuracy();
  drawWeights();
  showExplanation();
}

function start() {
  showHeader();
  showRuns();
  showLegend();
  drawAccuracy();
  showTargets();
  showNotes();
  showSettings();
  state.run = Math.max(0, RUNS.findIndex((run) => run.rounds.length));
  state.round = lastWeighed(RUNS[state.run]);
  state.client = rowsOf(RUNS[state.run], state.round)[0]?.id ?? 0;
  drawWeights();
  fillSelects();
  showExplanation();
  listen();
  listenToWeights();
  listenToBars();
  watchTheme(redraw);
}

start();
