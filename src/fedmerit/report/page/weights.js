// Weights: the heat map of clients by rounds; choosing a cell explains it.

// Clients that the configuration makes attackers: no recipe sees this.
const attackersOf = (run) => new Set(run.suspects?.planted?.clients);

function weightOrder(run) {
  const by = $("weights-order").value;
  const honest = () => run.names.map((_, id) => !attackersOf(run).has(id));
  return inOrder(run, by === "mean" ? meanWeights(run) : by === "attack" ? honest() : null);
}

function weightTraces(run, order) {
  const { weight, marks, top } = cells(run);
  const map = {
    type: "heatmap",
    x: numbersOf(run),
    y: order.map((_, row) => row),
    z: order.map((id) => weight[id]),
    ...weightScale(top),
    ...(roomy(run) ? { xgap: 1, ygap: 1 } : {}),
    hoverongaps: true, // a client without a weight has a reason, too
    hoverinfo: "none",
  };
  return marks.length && roomy(run) ? [map, crossTrace(marks, order)] : [map];
}

// From weight 0 to the highest; values below 0 stand for clients that were left out and have their own colour.
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
  $("weights-says").textContent = empty ? "" : heldText(run);
  if (empty) return;
  document.querySelector('#weights-order [value="attack"]').hidden = !attackersOf(run).size;
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

// What attackers hold of the weight; without attackers, who has the highest and the lowest mean weight.
function heldText(run) {
  const [attackers, means] = [attackersOf(run), meanWeights(run)];
  const who = (id) => `${shorten(nameOf(run, id), 24)} (${accuracyText(means[id])})`;
  const order = inOrder(run, means).filter((id) => means[id] >= 0);
  if (!order.length) return "";
  if (!attackers.size) return `Highest mean weight: ${who(order[0])}. Lowest: ${who(lastOf(order))}.`;
  const rounds = numbersOf(run).map((_, place) => [idsOf(run, place), weightsOf(run, place)]);
  const theirs = rounds.flatMap(([ids, weights]) => weights.filter((_, k) => attackers.has(ids[k])));
  const share = sumOf(theirs) / sumOf(rounds.flatMap(([, weights]) => weights));
  const held = accuracyText(share).replace(" ", "\u00a0"); // a number stays with its unit
  const counted = `${attackers.size} of ${plural(run.names.length, "client")} are attackers`;
  return `${counted}. They hold ${held} of the weight over all rounds of ${shorten(run.label)}.`;
}

function showKeys(run) {
  const { marks, top, capped } = cells(run);
  $("weights-keys").replaceChildren(
    keyed("low", "weight 0"),
    keyed("high", `${weightText(top)}${capped ? " and more" : ""}`),
    keyed("blank", "not selected"),
    marks.length ? keyed("out", `left out (${plural(marks.length, "time")})`) : "",
    attackersOf(run).size ? `${ATTACKER} attacker (from the configuration; the recipe does not see it)` : "",
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
