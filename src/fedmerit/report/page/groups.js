// Groups: which clients were aggregated together in each round, the number of groups and the distance threshold.

const COLOURS = 7; // groups beyond so many at once share a grey

// number[client][round place]: the number of the client's group, from 0.
function groupCells(run) {
  if (run.homes) return run.homes;
  const number = run.names.map(() => new Array(numbersOf(run).length).fill(null));
  numbersOf(run).forEach((_, place) => {
    const ids = idsOf(run, place);
    const group = spreadOut(run.rounds.group[place], ids.length);
    ids.forEach((id, k) => (number[id][place] = Math.min(group[k], COLOURS)));
  });
  run.homes = { number, home: number.map(commonest) };
  return run.homes;
}

// The group that a client was in most often; -1 for a client that never took part.
function commonest(row) {
  const counts = new Map();
  for (const value of row) if (value !== null) counts.set(value, (counts.get(value) ?? 0) + 1);
  const [best] = [...counts].sort((a, b) => b[1] - a[1]);
  return best ? best[0] : -1;
}

// By group: the lowest number first, clients that never took part last.
const byHome = (run) => groupCells(run).home.map((home) => (home < 0 ? -COLOURS - 1 : -home));
const groupOrder = (run) => inOrder(run, $("groups-order").value === "group" ? byHome(run) : null);

const groupColours = () => [...Array.from({ length: COLOURS }, (_, i) => rowColour(i)), cssValue("bar")];

function drawGroups() {
  const run = RUNS[state.run];
  const order = groupOrder(run);
  const steps = groupColours().flatMap((colour, i) => [i, i + 1].map((edge) => [edge / (COLOURS + 1), colour]));
  const map = {
    type: "heatmap",
    x: numbersOf(run),
    y: order.map((_, row) => row),
    z: order.map((id) => groupCells(run).number[id]),
    zmin: -0.5,
    zmax: COLOURS + 0.5,
    colorscale: steps,
    showscale: false,
    ...(roomy(run) ? { xgap: 1, ygap: 1 } : {}),
    hoverongaps: true,
    hoverinfo: "none",
  };
  const height = mapHeight(run) + ABOVE + 60;
  const { xaxis, yaxis } = mapAxes(run, order);
  draw($("groups-plot"), [map, ...countTraces(run)], {
    height,
    hovermode: "closest",
    shapes: outline(order),
    uirevision: `${state.run} ${$("groups-order").value}`,
    xaxis: { ...xaxis, anchor: "y" },
    yaxis: { ...yaxis, domain: [0, 1 - ABOVE / (height - 60)] },
    ...countAxes(run, height),
  });
}

const ABOVE = 130; // px above the map for the number of groups and the cut

function countTraces(run) {
  const common = { type: "scatter", mode: "lines", x: numbersOf(run), hoverinfo: "skip" };
  const shape = { shape: "hvh", width: 2 };
  const number = { ...common, y: run.rounds.groups, yaxis: "y2", line: { ...shape, color: cssValue("ink") } };
  const accent = { color: cssValue("accent") };
  const line = { ...common, y: run.rounds.cut, yaxis: "y3", line: { ...shape, ...accent, dash: "dot" } };
  const cut = { ...line, mode: "lines+markers", marker: { ...accent, size: 4 } }; // one round does not make a line
  return [number, cut];
}

function countAxes(run, height) {
  const domain = [1 - (ABOVE - 30) / (height - 60), 1];
  const most = Math.max(...run.rounds.groups, 2);
  const side = (name, text) => ({
    title: { text, font: { color: cssValue(name), size: 12 } },
    tickfont: { color: cssValue(name) },
    fixedrange: true,
    automargin: true,
  });
  const number = { ...side("ink", "groups"), domain, range: [0, most * 1.1], nticks: 4, tickformat: "d" };
  const cut = { ...side("accent", "cut"), overlaying: "y2", side: "right", range: [0, 2.2], tickvals: [0, 1, 2] };
  return { yaxis2: axis(number), yaxis3: axis({ ...cut, showgrid: false }) };
}

function groupText(run, round, id) {
  const rows = rowsOf(run, round);
  const mine = rows.find((row) => row.id === id);
  if (!mine) return fateText(run, round, id);
  const [name, peers] = [shorten(nameOf(run, id)), peersOf(rows, mine).length];
  if (peers === rows.length) return `${name}: all ${plural(peers, "client")} of round ${round} are one group`;
  return `${name}: ${shareOf(run, round, mine.group)}, with ${plural(peers - 1, "other")}`;
}

function showGroups() {
  const run = RUNS[state.run];
  const none = !run.grouped;
  for (const part of ["plot", "keys", "says"]) $(`groups-${part}`).hidden = none;
  $("groups-order").closest("label").hidden = none;
  $("groups-empty").hidden = !none;
  $("groups-empty").textContent = `In ${shorten(run.label)} all clients are one group.`;
  if (none) return;
  $("groups-plot").style.minHeight = `${mapHeight(run) + ABOVE + 60}px`;
  showGroupKeys(run);
  sayGroup();
  refresh("groups-plot");
}

function showGroupKeys(run) {
  const { home } = groupCells(run);
  const numbers = [...new Set(home)].filter((number) => number >= 0).sort((a, b) => a - b);
  const key = (number) => {
    const count = plural(home.filter((each) => each === number).length, "client");
    if (number < COLOURS) return keyed(`fill run-${number + 1}`, `${count} most of the time`);
    return keyed("fill rest", `further groups: ${count} most of the time`);
  };
  $("groups-keys").replaceChildren(...numbers.map(key), keyed("blank", "not selected"));
}

// In words, for screen readers: the selected cell, and a link to its weight.
function sayGroup() {
  const run = RUNS[state.run];
  if (!run.grouped) return;
  const cut = run.rounds.cut[run.places.get(state.round)];
  const apart = cut === null ? "" : ` Groups are at least ${numberText(cut, 3)} apart.`;
  const why = button("Why this weight?", () => reveal($("explain")));
  $("groups-says").replaceChildren(`${clean(groupText(run, state.round, state.client))}.${apart} `, why);
}

function listenToGroups(place) {
  const cell = listenToMap(place, groupOrder, groupText);
  place.on("plotly_click", ({ points: [point] }) => {
    const [round, client] = cell(point);
    choose({ round, client });
  });
}
