// Live: hears from the server what changed, and shows it; a page in a file hears nothing.

let paused = false;
let busy = false;
const waiting = []; // what was heard and is not shown yet

function takeRow([index, more]) {
  const row = ROWS[index];
  const { curve, ...rest } = more;
  const fresh = measureNames(row);
  Object.assign(row, rest);
  row.curve.round = [...row.curve.round.slice(0, curve.from), ...curve.round];
  row.curve.measures = curve.measures.map((measure, i) => ({
    ...measure,
    lines: measure.lines.map((line, k) => [...earlier(row.curve.measures[i], k, curve.from), ...line]),
  }));
  return fresh !== measureNames(row);
}

const earlier = (measure, k, count) => (count ? measure.lines[k].slice(0, count) : []);

const measureNames = (row) => row.curve.measures.map(({ name, at }) => `${name} ${at}`).join();

function takeRuns(runs) {
  runs.forEach((more, index) => {
    const run = RUNS[index];
    if (run.names && run.played !== more.played) run.behind = true;
    Object.assign(run, more);
  });
}

function takeNow(all) {
  all.forEach((now, index) => {
    NOW[index] = { ...now, heard: performance.now() };
    RUNS[index].ended = now.state !== "running";
  });
}

function showRows(others) {
  [showHeader, showVerdict, showRuns, showTargets, showCounts, showFinal].forEach((show) => show());
  if (others) {
    showAccuracy();
    showFairness();
  } else CURVES.forEach((show) => show());
  hidePanels();
}

// More rounds of the run in view; who looks at its last round stays at the last one.
async function follow() {
  const run = RUNS[state.run];
  if (!run.names) return performance.now();
  const newest = lastOf(numbersOf(run));
  const begin = await grow(run);
  if (!numbersOf(run).length) return begin;
  if (newest !== undefined && state.round !== newest && state.round !== 0) withoutHurry(showMore);
  else {
    state.round = lastWeighed(run);
    if (newest === undefined) state.client = rowsOf(run, state.round)[0]?.id ?? 0;
    withoutHurry(showRun);
  }
  return begin;
}

// For who looks at an earlier round: what grows, and nothing of what is being read.
function showMore() {
  const run = RUNS[state.run];
  const there = $("explain-round").options.length;
  $("explain-round").append(...numbersOf(run).slice(there).map((round) => option(round, String(round), state.round)));
  [showWeights, showSearch, showGroups].forEach((show) => show());
}

// What was heard since the last showing, in order, shown once; whether the page asks for itself anew.
function take(messages) {
  const found = { grown: false, others: false };
  for (const message of messages) {
    if (message.anew || (message.runs && message.runs.length !== RUNS.length)) return null;
    if (message.now) takeNow(message.now);
    if (message.runs) takeRuns(message.runs);
    for (const key of ["verdict", "waiting", "criteria"]) if (key in message) DATA[key] = message[key];
    if (message.criteria) takeCriteria();
    found.others = (message.rows ?? []).map(takeRow).some(Boolean) || found.others;
    found.grown ||= Boolean(message.rows || message.runs || message.retry);
  }
  return found;
}

async function showHeard() {
  const found = take(waiting.splice(0));
  if (!found) return window.location.reload();
  let begin = performance.now();
  if (found.grown) {
    begin = await follow();
    withoutHurry(() => showRows(found.others));
    if (found.others) showGlossary();
  }
  showNow();
  if (found.grown) {
    sayLink("");
    tellUpdate(begin);
  }
}

// In milliseconds, for whoever measures.
function tellUpdate(begin) {
  const about = document.documentElement.dataset;
  about.updated = String(Math.round(performance.now() - begin));
  about.round = String(RUNS[state.run].played);
}

// One showing after the other, with room in between for the reader.
async function hear(message) {
  if (message) waiting.push(message);
  if (busy || paused) return;
  busy = true;
  try {
    while (waiting.length && !paused) {
      await showHeard();
      await new Promise((next) => setTimeout(next, 50));
    }
  } catch (error) {
    sayLink(`An update failed, and is tried again: ${error.message}`);
    window.setTimeout(() => hear({ retry: true }), 500);
  } finally {
    busy = false;
  }
}

function sayLink(text) {
  $("now-link").textContent = text;
}

function pause() {
  paused = !paused;
  $("now-pause").textContent = paused ? "Go on" : "Pause";
  sayLink(paused ? "Paused: the page stays as it is, the run goes on." : "");
  if (!paused) hear(null);
}

function startLive() {
  if (!LIVE) return;
  const stream = new EventSource("events");
  stream.addEventListener("message", ({ data }) => hear(JSON.parse(data)));
  stream.addEventListener("open", () => sayLink(""));
  stream.addEventListener("error", () => sayLink("No answer from `fedmerit watch`; trying again."));
  $("now-pause").addEventListener("click", pause);
  window.setInterval(tickNow, 1000);
}

AFTER_CHOICE.push(showNow);
startLive();
