// Charts: each is drawn when it comes near the screen, and again when what it shows has changed.

const CHARTS = new Map(); // id -> { place, drawing, listen, can, near, stale, heard }
const NEAR = "500px 0px"; // so far off the screen a chart is drawn already, so that nobody waits for it
const REST = 10; // so many times what its drawing took, a large run's chart waits for the next while rounds come in

let unhurried = false; // true while what changed came by itself, and nobody asked for it

// `drawing` draws it; `listen` is told of the place once, when plotly has made it; `can` tells whether there is data.
function chart(id, drawing, listen = () => {}, can = () => true) {
  const fresh = { place: $(id), near: false, heard: false };
  const one = CHARTS.get(id) ?? fresh;
  CHARTS.set(id, Object.assign(one, { drawing, listen, can, stale: true }));
}

function draw(place, traces, shape) {
  Plotly.react(place, traces, layout(shape), { ...CONFIG, displayModeBar: narrow() ? false : "hover" });
}

function drawChart(one) {
  if (!window.Plotly || !one.stale || !one.can() || one.place.hidden) return;
  one.stale = false;
  const begin = performance.now();
  one.drawing();
  one.ended = performance.now();
  one.took = one.ended - begin;
  if (!one.heard && one.place.on) {
    one.heard = true;
    one.listen(one.place);
  }
}

// What these show has changed: who is near is drawn at once, who is not when it comes near.
function refresh(...ids) {
  for (const id of ids) {
    const one = CHARTS.get(id);
    one.stale = true;
    if (!one.near) continue;
    if (unhurried && one.took && !roomy(RUNS[state.run])) drawLater(one);
    else drawChart(one);
  }
}

// Tables follow every round at once; a map of half a million cells every few seconds, or the page would stand still.
function drawLater(one) {
  const rested = one.ended + REST * one.took - performance.now();
  one.later ??= window.setTimeout(() => {
    one.later = undefined;
    if (one.near) drawChart(one);
  }, rested);
}

function withoutHurry(show) {
  unhurried = true;
  show();
  unhurried = false;
}

const isDrawn = (id) => CHARTS.get(id).heard && !CHARTS.get(id).stale;

// One after the other, with room in between for the screen and the reader.
async function drawInTurn(charts) {
  for (const one of charts) {
    drawChart(one);
    await new Promise((next) => setTimeout(next));
  }
}

// Plotly takes longer to start than the whole page to show, so it starts when all else is on the screen. Ends when the
// charts in sight are drawn; others follow as they come near.
async function startCharts() {
  const plotly = inflated("plotly");
  await new Promise((shown) => requestAnimationFrame(() => setTimeout(shown)));
  document.head.append(el("script", await plotly));
  const byPlace = new Map([...CHARTS.values()].map((one) => [one.place, one]));
  await new Promise((drawn) => {
    const came = async (entries) => {
      for (const { target, isIntersecting } of entries) byPlace.get(target).near = isIntersecting;
      await drawInTurn([...CHARTS.values()].filter(({ near }) => near));
      drawn();
    };
    const observer = new IntersectionObserver(came, { rootMargin: NEAR });
    byPlace.forEach((_, place) => observer.observe(place));
  });
}

// Colours or widths have changed; paper shows all charts, near or not.
function redrawAll(all = false) {
  for (const one of CHARTS.values()) {
    one.stale = true;
    if (all || one.near) drawChart(one);
  }
}

// Arrow keys as steps to the right and down.
function onArrows(place, move) {
  place.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    move(...step);
  });
}

// What a point says while the pointer is on it; ours, for plotly's boxes would read names as markup.
function onHover(place, text) {
  place.on("plotly_hover", (hover) => showTip(hover.event, text(hover.points[0])));
  place.on("plotly_unhover", hideTip);
}
