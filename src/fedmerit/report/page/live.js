// Live: asks the server again and again what the runs do and what changed, and shows it; a page in a file does not.

const EVERY = 500; // milliseconds between two questions
let paused = false;

// Rows and runs of the page as they are now; whether other measures are there than before.
function takePage(page) {
  const before = ROWS.map(measureNames).join();
  Object.assign(DATA, page);
  page.rows.forEach((row, i) => Object.assign(ROWS[i], row));
  page.runs.forEach((run, i) => {
    RUNS[i].behind = true;
    Object.assign(RUNS[i], run);
  });
  takeCriteria();
  return before !== ROWS.map(measureNames).join();
}

const measureNames = (row) => row.curve.measures.map(({ name, at }) => `${name} ${at}`).join();
const shapeOf = ({ rows, runs }) => JSON.stringify([rows.map(({ label }) => label), runs.map(({ folder }) => folder)]);

function showRows(others) {
  [showHeader, showVerdict, showRuns, showTargets, showCounts, showFinal, showTuning].forEach((show) => show());
  if (others) {
    showAccuracy();
    showFairness();
    showGlossary();
  } else CURVES.forEach((show) => show());
  hidePanels();
}

// More rounds of the run in view; who looks at its last round stays at the last one.
async function follow() {
  const run = RUNS[state.run];
  const newest = run.names && lastOf(numbersOf(run));
  await unfold(run);
  if (!numbersOf(run).length) return;
  if (newest !== undefined && state.round !== newest && state.round !== 0) withoutHurry(showMore);
  else {
    state.round = lastWeighed(run);
    if (newest === undefined) state.client = rowsOf(run, state.round)[0]?.id ?? 0;
    withoutHurry(showRun);
  }
}

// For who looks at an earlier round: what grows, and nothing of what is being read.
function showMore() {
  const run = RUNS[state.run];
  const there = $("explain-round").options.length;
  $("explain-round").append(...numbersOf(run).slice(there).map((round) => option(round, String(round), state.round)));
  [showWeights, showSearch, showGroups].forEach((show) => show());
}

async function ask() {
  const response = await fetch(`now?have=${DATA.version}`);
  if (!response.ok) throw new Error(await response.text());
  const { page, now } = await response.json();
  if (page && shapeOf(page) !== shapeOf(DATA)) return window.location.reload();
  now.forEach((one, index) => (NOW[index] = { ...one, heard: performance.now() }));
  const others = Boolean(page) && takePage(page);
  if (RUNS[state.run].behind) {
    await follow();
    withoutHurry(() => showRows(others));
    document.documentElement.dataset.round = String(RUNS[state.run].played);
  }
  showNow();
  sayLink("");
}

// One question after the other, with room in between for the reader.
async function keepAsking() {
  try {
    if (!paused) await ask();
  } catch (error) {
    sayLink(`No answer from the server, trying again: ${error.message}`);
  }
  window.setTimeout(keepAsking, EVERY);
}

function sayLink(text) {
  if (!paused) $("now-link").textContent = text;
}

function pause() {
  paused = !paused;
  $("now-pause").textContent = paused ? "Resume" : "Pause";
  $("now-link").textContent = paused ? "The page is paused; the run continues." : "";
}

if (LIVE) {
  AFTER_CHOICE.push(showNow);
  $("now-pause").addEventListener("click", pause);
  window.setInterval(tickNow, 1000);
  keepAsking();
}
