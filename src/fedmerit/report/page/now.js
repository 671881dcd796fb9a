// Now: the state of the runs while the page is open, the time to go, and clients that were left out.

const NOW = []; // by run: what it does; `heard` is when we were told
const STATES = new Map([
  ["running", "is running"],
  ["finished", "is finished"],
  ["stopped", "was stopped; `fedmerit run --resume` continues it"],
  ["killed", "was killed: its process is gone; `fedmerit run --resume` continues it"],
  ["failed", "failed"],
  ["silent", "has no status file: it ran on another machine or with an earlier version"],
]);
const STAGES = new Map([
  ["start", "loads its data"],
  ["train", "clients train"],
  ["settle", "the server checks, weighs and aggregates"],
  ["evaluate", "the model is tested"],
]);
const SHOWN_NAMES = 24; // clients in training
const SHOWN_OUT = 6; // clients that were left out last

const ageOf = (now) => now.age + (performance.now() - now.heard) / 1000;
const plannedOf = (run) => ROWS[run.row].planned;

function stageText(now) {
  if (now.state !== "running") return "";
  const since = secondsText(ageOf(now));
  const stage = STAGES.get(now.stage) ?? now.stage;
  return now.round ? `Round ${now.round}: ${stage}, for ${since}.` : `It ${stage}, for ${since}.`;
}

function stateText(run, now) {
  const why = now.reason && now.state === "failed" ? `: ${clean(now.reason)}` : "";
  const planned = plannedOf(run);
  const rounds = planned ? `${run.played} of ${plural(planned, "round")}` : plural(run.played, "round");
  const left = secondsLeft(run) ? `, about ${secondsText(secondsLeft(run))} to go` : "";
  return `${shorten(run.label, 40)} ${STATES.get(now.state)}${why}. ${rounds}${left}.`;
}

// At the pace of its row so far; null where it does not run, or nothing is known yet.
function secondsLeft(run) {
  const { played, seconds } = ROWS[run.row].costs;
  if (NOW[run.index]?.state !== "running" || !plannedOf(run) || !played[0]) return null;
  return ((plannedOf(run) - run.played) * seconds[0]) / played[0];
}

// Of one run its state; of a study, how many runs are in each state.
function studyText() {
  const counts = [...STATES.keys()].map((name) => [name, NOW.filter((now) => now.state === name).length]);
  const told = counts.filter(([, count]) => count).map(([name, count]) => `${count} ${name}`);
  if (DATA.waiting) told.push(`${DATA.waiting} waiting`);
  return `${plural(RUNS.length + DATA.waiting, "run")}: ${listText(told)}.`;
}

function showNow() {
  const [run, now] = [RUNS[state.run], NOW[state.run]];
  $("now").hidden = !LIVE || !now;
  document.querySelector('nav a[href="#now"]').parentElement.hidden = $("now").hidden;
  if ($("now").hidden) return;
  $("now").dataset.state = now.state;
  $("now-says").textContent = RUNS.length > 1 ? studyText() : stateText(run, now);
  const whole = (each) => plannedOf(each) ?? Math.max(each.played, 1);
  $("now-bar").max = sumOf(RUNS.map(whole)) + DATA.waiting * whole(run);
  $("now-bar").value = sumOf(RUNS.map(({ played }) => played));
  tickNow();
  showTraining(run, now);
  showLeftOut(run);
  showBusy();
}

function tickNow() {
  if (NOW[state.run]) $("now-stage").textContent = stageText(NOW[state.run]);
}

function showTraining(run, now) {
  const { clients } = now;
  const names = clients.slice(0, SHOWN_NAMES).map((id) => el("li", brief(callOf(run, id), 24)));
  if (clients.length > SHOWN_NAMES) names.push(el("li", `and ${plural(clients.length - SHOWN_NAMES, "other")}`));
  $("now-training").replaceChildren(...names);
  $("now-training-title").hidden = $("now-pause").hidden = now.state !== "running";
  const some = `Training now: ${plural(clients.length, "client")}`;
  $("now-training-title").textContent = clients.length ? some : "No client is training";
}

// A client's name; its number while the run's names are not here yet.
const callOf = (run, id) => (run.names?.[id] === undefined ? `client ${id}` : nameOf(run, id));

function showLeftOut(run) {
  const all = [...(run.said ?? [])].sort(([a], [b]) => b - a);
  const out = all.flatMap(([round]) => leftOut(run, round).map((event) => ({ round, ...event }))).slice(0, SHOWN_OUT);
  const who = (client) => (client === null ? "" : `${shorten(callOf(run, client), 24)}: `);
  const line = ({ round, client, text }) => el("li", `round ${round}: ${who(client)}`, el("q", shorten(text, 200)));
  $("now-out").replaceChildren(...out.map(line));
  $("now-out-title").textContent = out.length ? "Left out last" : "No client was left out";
  $("now-out-title").hidden = !out.length && RUNS.length > 1;
}

// The runs of a study that are running, a line each.
function showBusy() {
  const busy = RUNS.filter((run) => NOW[run.index]?.state === "running");
  $("now-runs").hidden = RUNS.length === 1 || !busy.length;
  const line = (run) => {
    const rounds = `${run.played} of ${known(plannedOf(run), String)}`;
    const chooser = button(shorten(run.label, 40), () => choose({ run: run.index }));
    return [chooser, rounds, known(secondsLeft(run), secondsText)];
  };
  $("now-runs").replaceChildren(table(null, ["running", "rounds", "to go"], busy.map(line), (i) => i > 0));
}
