// Weights: the heat map of clients by rounds; choosing a cell explains it.

const weightOrder = (run) => inOrder(run, $("weights-order").value === "mean" ? meanWeights(run) : null);

function weightTraces(run, order) {
  const { weight, marks, top } = cells(run);
  const map = {
    type: "heatmap",
    x: numbersOf(run),
    y: order.map((_, row) => row),
    z: order.map((id) => weight[id]),
    ...weightScale(top),
    ...(roomy(run) ? { xgap: 1, ygap: 1 } : {}),
    hoverongaps: true, // a client that was not drawn has its story, too
    hoverinfo: "none",
  };
  return marks.length && roomy(run) ? [map, crossTrace(marks, order)] : [map];
}

// From no weight to the heaviest; whatever lies below 0 was left out and has a colour of its own.
function weightScale(top) {
  const [out, none, mid, full] = ["out", "scale-none", "scale-mid", "scale-full"].map(cssValue);
  const tickfont = { color: cssValue("muted") };
  return {
    zmin: -top / 1000,
    zmax: top,
    colorscale: [
      [0, out],
      [0.0005, out],
      [0.0005, none],
      [0.5, mid],
      [1, full],
    ],
    colorbar: { thickness: 10, outlinewidth: 0, tickformat: ".3~p", nticks: 6, tickfont },
    showscale: !narrow(),
  };
}

function crossTrace(marks, order) {
  const rows = new Map(order.map((id, row) => [id, row]));
  const marker = { symbol: "x-thin", size: 7, line: { width: 1.5, color: cssValue("on-out") } };
  const [x, y] = [marks.map(([, round]) => round), marks.map(([client]) => rows.get(client))];
  return { type: "scatter", mode: "markers", x, y, marker, hoverinfo: "skip" };
}

function showWeights() {
  const run = RUNS[state.run];
  const empty = !numbersOf(run).length;
  $("weights-plot").hidden = $("weights-keys").hidden = empty;
  $("weights-empty").hidden = !empty;
  $("weights-empty").textContent = `${shorten(run.label)} has no round yet.`;
  if (empty) return;
  $("weights-plot").style.minHeight = `${mapHeight(run) + 60}px`; // else the page would jump when it is drawn
  refresh("weights-plot");
}

function drawWeights() {
  const run = RUNS[state.run];
  const order = weightOrder(run);
  draw($("weights-plot"), weightTraces(run, order), {
    height: mapHeight(run) + 60,
    hovermode: "closest",
    shapes: outline(order),
    uirevision: `${state.run} ${$("weights-order").value}`, // keeps the part in view while nothing else changes
    ...mapAxes(run, order),
  });
  showKeys(run);
}

const keyed = (kind, text) =>
  el("span", { class: "entry" }, el("span", { class: `key ${kind}`, "aria-hidden": "true" }), text);

function showKeys(run) {
  const { marks, top, capped } = cells(run);
  $("weights-keys").replaceChildren(
    keyed("low", "weight 0"),
    keyed("high", `${weightText(top)}${capped ? " and more" : ""}`),
    keyed("blank", "not drawn"),
    keyed("out", `left out${marks.length ? ` (${plural(marks.length, "time")})` : " (never)"}`),
  );
}

function moveOutline(id, order) {
  if (isDrawn(id)) Plotly.relayout($(id), { shapes: outline(order) });
}

function listenToWeights(place) {
  const cell = listenToMap(place, weightOrder, fateText);
  place.on("plotly_click", ({ points: [point] }) => {
    const [round, client] = cell(point);
    choose({ round, client }).then(openDrawer);
  });
}
