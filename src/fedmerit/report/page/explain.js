// Explain: why one client of one round got the weight it got; says the same as `fedmerit explain`.

function sentence() {
  const run = RUNS[state.run];
  const rows = rowsOf(run, state.round);
  const mine = rows.find((row) => row.id === state.client);
  const name = el("strong", null, brief(nameOf(run, state.client)));
  if (!mine) return [name, ` has no weight in round ${state.round}: it ${absence(run)}`];
  const place = rank(rows, (row) => row.weight, mine.weight);
  const times = plain((mine.weight * rows.length).toPrecision(3));
  return [name, " got ", el("strong", null, weightText(mine.weight)), ` of round ${state.round}: place ${place} of ${rows.length}; `,
    `an equal share would be ${weightText(1 / rows.length)}, so this is ${times} times an equal share.`];
}

function absence(run) {
  const why = leftOut(run, state.round).find((event) => event.client === state.client);
  return why ? `was left out: ${clean(why.text)}` : "was not drawn.";
}

// Every client's value as a tick on one line from 0 to the highest, this client's in colour.
function strip(rows, value, mine) {
  const space = "http://www.w3.org/2000/svg";
  const make = (tag, attributes) => {
    const node = document.createElementNS(space, tag);
    Object.entries(attributes).forEach(([key, content]) => node.setAttribute(key, content));
    return node;
  };
  const top = Math.max(...rows.map(value)) || 1;
  const x = (row) => (4 + (152 * value(row)) / top).toFixed(1);
  const svg = make("svg", { viewBox: "0 0 160 20", class: "strip", "aria-hidden": "true" });
  svg.append(make("line", { x1: 4, x2: 156, y1: 10, y2: 10, class: "base" }));
  svg.append(make("path", { d: rows.map((row) => `M${x(row)} 6V14`).join(""), class: "others" }));
  svg.append(make("path", { d: `M${x(mine)} 2V18`, class: "mine" }));
  return svg;
}

function criteriaTable(priority, rows, mine) {
  const lines = priority.map((name, i) => [
    brief(name, 24), numberText(mine.raw[i]), numberText(mine.norm[i], 4),
    `${rank(rows, (row) => row.raw[i], mine.raw[i])} of ${rows.length}`, strip(rows, (row) => row.raw[i], mine),
  ]);
  return el("div", { class: "scroll" }, table("Criteria, most important first",
    ["criterion", "value", "normalised", "rank", "among the round's clients, 0 to highest"], lines, (i) => i > 0 && i < 4));
}

// score = a + a * b + a * b * c, shown only where it is how this score was made.
function scoreTerms(run, mine) {
  if (mine.norm.length < 2 || (run.recipe.score ?? "prioritized") !== "prioritized") return "";
  const products = mine.norm.map((_, i) => mine.norm.slice(0, i + 1).reduce((all, value) => all * value, 1));
  const sum = products.reduce((all, value) => all + value, 0);
  if (Math.abs(sum - mine.score) > 0.01 * mine.score + 1e-9) return "";
  return mine.norm.map((_, i) => mine.norm.slice(0, i + 1).map((value) => numberText(value, 4)).join(" × ")).join(" + ") + " = ";
}

function scoreLine(run, mine, total) {
  const share = total ? `weight = ${numberText(mine.score)} / ${numberText(total)} = ${weightText(mine.weight)}` : "every score was 0";
  return el("p", { class: "formula" }, el("span", null, `score = ${scoreTerms(run, mine)}${numberText(mine.score)}`), el("span", null, share));
}

function factsList(mine) {
  if (!mine.facts.length) return el("p", null, "It reported no facts.");
  return el("dl", { class: "facts", "aria-label": "Facts the client reported" },
    mine.facts.map(([name, value]) => el("div", null, el("dt", null, brief(name, 24)), el("dd", null, numberText(value)))));
}

function roundEvents(run) {
  const about = saidIn(run, state.round).filter(({ client }) => client === null || client !== state.client);
  if (!about.length) return null;
  const lines = about.slice(0, 12).map(({ client, text }) => el("li", null, client === null ? null : [brief(nameOf(run, client)), " left out: "], clean(text)));
  const more = about.length > 12 ? el("li", null, `and ${plural(about.length - 12, "more")}, see below`) : null;
  return el("div", { class: "aside" }, el("h3", null, `Also in round ${state.round}`), el("ul", null, lines, more));
}

function showExplanation() {
  const run = RUNS[state.run];
  $("explain-body").hidden = $("explain-plot").hidden = $("explain-all").hidden = !run.rounds.length;
  if (!run.rounds.length) return $("explain-says").replaceChildren(`${shorten(run.label)} has no round yet.`);
  const packed = run.byRound.get(state.round);
  const rows = rowsOf(run, state.round);
  const mine = rows.find((row) => row.id === state.client);
  $("explain-says").replaceChildren(...sentence());
  const parts = mine ? [el("h3", null, "It reported"), factsList(mine), criteriaTable(packed.priority, rows, mine), scoreLine(run, mine, packed.total)] : [];
  $("explain-body").replaceChildren(...parts, ...[roundEvents(run)].filter(Boolean));
  $("explain-plot").hidden = $("explain-all").hidden = !rows.length;
  if (rows.length) drawBars(run, rows);
  if ($("explain-all").open) showRound();
}

function drawBars(run, rows) {
  const colours = rows.map((row) => cssValue(row.id === state.client ? "accent" : "bar"));
  const few = rows.length <= (narrow() ? 12 : 30);
  const places = rows.map((_, i) => i);
  const ticks = few ? { tickvals: places, ticktext: rows.map((row) => flat(run.names[row.id], 12)) } : { showticklabels: false };
  const equal = 1 / rows.length;
  draw($("explain-plot"), [{ type: "bar", x: places, y: rows.map((row) => row.weight), marker: { color: colours }, hoverinfo: "none" }], {
    height: 300, bargap: rows.length > 100 ? 0 : 0.25, hovermode: "closest", dragmode: false,
    shapes: [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: equal, y1: equal, line: { color: cssValue("muted"), dash: "dash", width: 1 } }],
    annotations: [{ xref: "paper", x: 1, y: equal, text: "equal share", showarrow: false, xanchor: "right", yanchor: "bottom", font: { color: cssValue("muted") } }],
    xaxis: axis({ title: titled(`clients of round ${state.round}, heaviest first`), showgrid: false, fixedrange: true, automargin: true, ...ticks }),
    yaxis: axis({ tickformat: ".1~%", rangemode: "tozero", fixedrange: true, automargin: true, title: titled("weight") }),
  });
}

// The table of `fedmerit explain --round`, built only when it is opened.
function showRound() {
  const run = RUNS[state.run];
  const { priority } = run.byRound.get(state.round);
  const pick = (row) => el("button", { type: "button", class: "link", onclick: () => choose({ client: row.id }) }, brief(nameOf(run, row.id)));
  const header = ["client", ...priority.flatMap((name) => [shorten(name, 20), `${shorten(name, 20)} norm.`]), "score", "weight"];
  const lines = rowsOf(run, state.round).map((row) => [pick(row), ...row.raw.flatMap((value, i) => [numberText(value), numberText(row.norm[i], 4)]), numberText(row.score), weightText(row.weight)]);
  $("explain-all").querySelector("div").replaceChildren(table(null, header, lines, (i) => i > 0));
}

function listenToBars() {
  const plot = $("explain-plot");
  if (!plot.on || plot.heard) return;
  plot.heard = true;
  const row = ({ points: [point] }) => rowsOf(RUNS[state.run], state.round)[point.x];
  plot.on("plotly_hover", (hover) => showTip(hover.event, fateText(RUNS[state.run], state.round, row(hover).id)));
  plot.on("plotly_unhover", hideTip);
  plot.on("plotly_click", (click) => choose({ client: row(click).id }));
}
