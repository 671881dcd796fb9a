// Now: what the runs do while the page is open, how long it will take, and who was left out.

const NOW = []; // by run: what it does; `heard` is when we were told
const STATES = new Map([
  ["running", "runs"],
  ["finished", "is finished"],
  ["stopped", "was stopped; `fedmerit run --resume` continues it"],
  ["killed", "was killed: its process is gone; `fedmerit run --resume` continues it"],
  ["failed", "failed"],
  ["silent", "does not tell what it does: it was made elsewhere, or by an earlier version"],
]);
const STAGES = new Map([
  ["start", "loads its data"],
  ["train", "clients train"],
  ["settle", "the server checks, weighs and aggregates"],
  ["evaluate", "the model is tested"],
]);
const SHOWN_NAMES = 24; // of those who train

const ageOf = (now) => (now.age === null ? 0 : now.age + (performance.now() - now.heard) / 1000);

function stageText(now) {
  if (now.state !== "running") return "";
  const since = secondsText(ageOf(now));
  const stage = STAGES.get(now.stage) ?? now.stage;
  return now.round ? `Round ${now.round}: ${stage}, since ${since}.` : `It ${stage}, since ${since}.`;
}

function stateText(run, now) {
  const why = now.reason && now.state === "failed" ? `: ${clean(now.reason)}` : "";
  const rounds = now.planned ? `${now.played} of ${plural(now.planned, "round")}` : plural(now.played, "round");
  const left = now.left ? `, about ${secondsText(now.left)} to go` : "";
  return `${shorten(run.label, 40)} ${STATES.get(now.state)}${why}. ${rounds}${left}.`;
}

function showNow() {
  const [run, now] = [RUNS[state.run], NOW[state.run]];
  $("now").hidden = !LIVE || !now;
  document.querySelector('nav a[href="#now"]').parentElement.hidden = $("now").hidden;
  if ($("now").hidden) return;
  $("now").dataset.state = now.state;
  $("now-says").textContent = stateText(run, now);
  $("now-bar").max = now.planned ?? Math.max(now.played, 1);
  $("now-bar").value = now.played;
  tickNow();
  showTraining(run, now);
  showStages(now);
  showLeftOut(run, now);
  showOthers();
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
  $("now-training-title").textContent = clients.length ? some : "Nobody trains right now";
}

// A client's name; its number while the run's names are not here yet.
const callOf = (run, id) => (run.names?.[id] === undefined ? `client ${id}` : nameOf(run, id));

function showStages({ stages }) {
  const most = Math.max(...stages.map(([, last, mean]) => Math.max(last, mean)), 1e-9);
  const long = (value) => `width: ${((6 * value) / most).toFixed(2)}rem`;
  const bar = (value) => el("span", { class: "length", "aria-hidden": "true", style: long(value) });
  const line = ([name, last, mean]) => [name, [bar(last), shortText(last)], shortText(mean)];
  const shown = table("Time per stage", ["stage", "last round", "mean"], stages.map(line), (i) => i > 0);
  $("now-stages").replaceChildren(...(stages.length ? [shown] : []));
}

function showLeftOut(run, { out }) {
  const who = (client) => (client === null ? "" : `${shorten(callOf(run, client), 24)}: `);
  const line = ([round, client, text]) => el("li", `round ${round}: ${who(client)}`, el("q", clean(text)));
  $("now-out").replaceChildren(...[...out].reverse().map(line));
  $("now-out-title").textContent = out.length ? "Left out last" : "Nobody was left out";
}

// The other runs of the page, a line each.
function showOthers() {
  $("now-runs").hidden = RUNS.length === 1;
  if (RUNS.length === 1) return;
  const counts = [...STATES.keys()].map((name) => [name, NOW.filter((now) => now.state === name).length]);
  const told = counts.filter(([, count]) => count).map(([name, count]) => `${count} ${name}`);
  const busy = RUNS.filter((run) => NOW[run.index]?.state === "running");
  const line = (run) => {
    const now = NOW[run.index];
    const rounds = `${now.played} of ${known(now.planned, String)}`;
    return [button(shorten(run.label, 40), () => choose({ run: run.index })), rounds, known(now.left, secondsText)];
  };
  const shown = table(`All runs: ${listText(told)}`, ["running", "rounds", "to go"], busy.map(line), (i) => i > 0);
  $("now-runs").replaceChildren(shown);
}
