// Search: the weightings that each round's search evaluated, their quality, and the one that it used.

// All weightings that ever came up, the one that was taken most often first; weighting -> how often it was taken.
function weightingsOf(run) {
  const taken = new Map();
  for (const tried of run.search.tried) {
    for (const [weighting, same, , , chosen] of tried) {
      for (const each of [weighting, ...same]) taken.set(each, taken.get(each) ?? 0);
      if (chosen) taken.set(weighting, taken.get(weighting) + 1);
    }
  }
  return new Map([...taken].sort((a, b) => b[1] - a[1]));
}

// How far from the best of the round, by weighting and round; weightings that do the same have the same.
function searchCells(run, weightings) {
  const sign = run.search.lower ? -1 : 1;
  const places = new Map(weightings.map((weighting, row) => [weighting, row]));
  const below = weightings.map(() => new Array(numbersOf(run).length).fill(null));
  const marks = [];
  run.search.tried.forEach((tried, place) => {
    const best = Math.max(...tried.map(([, , quality]) => quality === null ? -Infinity : sign * quality));
    for (const [weighting, same, quality, , chosen] of tried) {
      for (const each of quality === null ? [] : [weighting, ...same]) {
        below[places.get(each)][place] = sign * quality - best;
      }
      if (chosen) marks.push([numbersOf(run)[place], places.get(weighting)]);
    }
  });
  return { below, marks };
}

function drawSearch() {
  const run = RUNS[state.run];
  const taken = weightingsOf(run);
  const weightings = [...taken.keys()];
  const { below, marks } = searchCells(run, weightings);
  const lowest = Math.min(...below.flat().filter((value) => value !== null), -0.0001);
  const map = {
    type: "heatmap",
    x: numbersOf(run),
    y: weightings.map((_, row) => row),
    z: below,
    zmin: lowest,
    zmax: 0,
    colorscale: [
      [0, cssValue("scale-none")],
      [1, cssValue("scale-mid")],
    ],
    colorbar: {
      thickness: 10,
      outlinewidth: 0,
      tickformat: run.search.format ? ".3~p" : ".3~",
      nticks: 5,
      tickfont: { color: cssValue("muted") },
    },
    showscale: !narrow(),
    ...(numbersOf(run).length <= 100 ? { xgap: 1, ygap: 1 } : {}),
    hoverongaps: true,
    hoverinfo: "none",
  };
  const marker = { size: 7, color: cssValue("ink"), line: { width: 1, color: cssValue("paper") } };
  const [x, y] = [marks.map(([round]) => round), marks.map(([, row]) => row)];
  const dots = { type: "scatter", mode: "markers", x, y, marker, hoverinfo: "skip" };
  const shape = { height: searchHeight(weightings), hovermode: "closest", shapes: roundBand() };
  draw($("search-plot"), [map, dots], { ...shape, ...searchAxes(run, taken) });
}

const searchHeight = (weightings) => Math.max(160, Math.min(weightings.length * 26, 640)) + 60;

function searchAxes(run, taken) {
  const words = [...taken].map(([weighting, times]) => `${flat(weighting, narrow() ? 14 : 40)} (${times}×)`);
  const ticks = { tickvals: words.map((_, i) => i), ticktext: words };
  return { xaxis: roundAxis(run), yaxis: mapAxis({ range: [words.length - 0.45, -0.55], ...ticks }) };
}

// The chosen round, as a frame around its column.
function roundBand() {
  const box = { type: "rect", yref: "paper", y0: 0, y1: 1, x0: state.round - 0.5, x1: state.round + 0.5 };
  return [{ ...box, line: { color: cssValue("accent"), width: 2 } }];
}

function showSearch() {
  const run = RUNS[state.run];
  const none = !run.search;
  $("search-plot").hidden = $("search-table").hidden = $("search-says").hidden = none;
  $("search-empty").hidden = !none;
  $("search-empty").textContent = `${shorten(run.label)} has no search: its order is fixed.`;
  if (none) return;
  $("search-plot").style.minHeight = `${searchHeight([...weightingsOf(run).keys()])}px`;
  $("search-says").textContent = askedText(run);
  showTried();
  refresh("search-plot");
}

function askedText(run) {
  const [exchanges, models, tests] = [0, 1, 2].map((i) => run.search.asked.reduce((sum, asked) => sum + asked[i], 0));
  const rounds = run.search.tried.filter((tried) => tried.length).length;
  const differed = run.search.tried.reduce((sum, tried) => sum + tried.length, 0) / Math.max(rounds, 1);
  const asked = `${plural(exchanges, "exchange")} with the clients, ${plural(models, "model")} sent`;
  const tested = `${plural(tests, "test")} by clients`;
  const per = `Per round ${numberText(differed, 3)} of ${plural(weightingsOf(run).size, "weighting")} differed.`;
  return `Total: ${asked}, ${tested}. ${per}`;
}

const qualityText = (run, quality) => formatted(quality, run.search.format);

// What the chosen round's search tried, in the order of visiting.
function showTried() {
  const run = RUNS[state.run];
  if (!run.search) return;
  const tried = run.search.tried[run.places.get(state.round)];
  const lines = tried.map(([weighting, same, quality, exchange, chosen]) => [
    brief(weighting, narrow() ? 20 : 60),
    chosen ? "used" : "–",
    quality === null ? "not evaluated" : qualityText(run, quality),
    known(exchange, String),
    same.length ? same.map((each) => shorten(each, 60)).join("; ") : "–",
  ]);
  const header = ["weighting", "used", `clients' ${run.search.by}`, "exchange", "same weights as"];
  const order = tried.length ? "in the order of evaluation" : "no client to weigh";
  const shown = table(`Round ${state.round}: ${order}`, header, lines, (i) => i === 2 || i === 3);
  tried.forEach(([, , , , chosen], i) => shown.tBodies[0].rows[i].classList.toggle("taken", chosen));
  $("search-table").replaceChildren(shown);
}

function triedText(run, round, weighting) {
  const tried = run.search.tried[run.places.get(round)];
  const found = tried.find(([each, same]) => each === weighting || same.includes(weighting));
  if (!found) return `round ${round}: ${shorten(weighting, 60)}: not a candidate`;
  const [each, , quality, , chosen] = found;
  const did = quality === null ? "not evaluated" : `clients' ${run.search.by} ${qualityText(run, quality)}`;
  const as = each === weighting ? "" : `, weighs as ${shorten(each, 60)}`;
  return `round ${round}: ${shorten(weighting, 60)}: ${did}${as}${chosen ? "; used" : ""}`;
}

function listenToSearch(place) {
  const weighting = (run, { y }) => [...weightingsOf(run).keys()][y];
  onHover(place, (point) => triedText(RUNS[state.run], point.x, weighting(RUNS[state.run], point)));
  place.on("plotly_click", ({ points: [{ x }] }) => choose({ round: x }));
  onArrows(place, (right) => walk([state.client], right, 0));
}
