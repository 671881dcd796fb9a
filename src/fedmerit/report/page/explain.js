// Explain: why a client got its weight in a round; gives the same text as `fedmerit explain`.

// The reason of what is chosen, line by line; the first as parts, with the client's name in bold.
function whyTexts() {
  const run = RUNS[state.run];
  const rows = rowsOf(run, state.round);
  const mine = rows.find((row) => row.id === state.client);
  const name = el("strong", brief(nameOf(run, state.client)));
  if (!mine) return [[name, ` has no weight in round ${state.round}: it ${absence(run)}`]];
  const age = mine.facts.find(([each]) => each === "remembered")?.[1];
  const of = shareOf(run, state.round, mine.group) + (age ? `, with its update of round ${state.round - age}` : "");
  const reason = reasonOf(run, run.places.get(state.round), peersOf(rows, mine), mine);
  const called = shorten(nameOf(run, state.client));
  if (reason) return [[name, ` ${reasonSentence(reason, of)}`], ...reasonLines(reason, called)];
  return [[name, ` got ${percentText(mine.weight)} of ${of} by its score of ${numberText(mine.score)}.`]];
}

function absence(run) {
  const why = leftOut(run, state.round).find((event) => event.client === state.client);
  return why ? `was left out: ${clean(why.text)}` : "was not drawn.";
}

// Every client's value as a tick on a line from 0 to the maximum, this client's in colour.
function strip(rows, value, mine) {
  const make = (tag, attributes) => el(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes);
  const top = Math.max(...rows.map(value)) || 1;
  const x = (row) => (4 + (152 * value(row)) / top).toFixed(1);
  const svg = make("svg", { viewBox: "0 0 160 20", class: "strip", "aria-hidden": "true" });
  svg.append(make("line", { x1: 4, x2: 156, y1: 10, y2: 10, class: "base" }));
  const others = rows.length > 200 ? "others many" : "others";
  svg.append(make("path", { d: rows.map((row) => `M${x(row)} 6V14`).join(""), class: others }));
  svg.append(make("path", { d: `M${x(mine)} 2V18`, class: "mine" }));
  return svg;
}

function criteriaTable(priority, rows, mine) {
  const lines = priority.map((name, i) => [
    criterionCell(name),
    numberText(mine.raw[i]),
    fourText(mine.norm[i]),
    `${rank(rows, (row) => row.raw[i], mine.raw[i])} of ${rows.length}`,
    strip(rows, (row) => row.raw[i], mine),
  ]);
  const header = ["criterion", "value", "normalised", "rank", "0 to the maximum"];
  const shown = table("Criteria, most important first", header, lines, (i) => i > 0 && i < 4);
  return scrollBox("Criteria", shown);
}

// What the score is made of; the number alone where it is a user's own score, or where the page's digits do not give it
// again. A rank must be exact: the next one may be nearer than a hundredth, and is another client's.
function scoreText(run, place, peers, mine) {
  const [score, table] = [run.rounds.scores[run.rounds.scored[place]], peers.map(({ norm }) => norm)];
  const terms = termsOf(score, table, peers.indexOf(mine));
  const near = terms && Math.abs(terms.score - mine.score) <= (terms.rank ? 1e-5 : 0.01) * mine.score + 1e-9;
  return near ? termsText(terms, mine.score) : numberText(mine.score);
}

function scoreLine(run, place, peers, mine) {
  const total = run.rounds.total[place][mine.group];
  const share = total
    ? `weight = ${numberText(mine.score)} / ${numberText(total)} = ${weightText(mine.earned)}${capText(mine)}`
    : "every score was 0";
  const score = `score = ${scoreText(run, place, peers, mine)}`;
  return el("p", { class: "formula" }, el("span", score), el("span", share));
}

// What the cap made of a weight; nothing where it is as it was earned, but for the page's digits.
function capText({ earned, weight }) {
  if (Math.abs(earned - weight) <= 1e-4 * weight) return "";
  const [now, cut] = [weightText(weight), weight < earned];
  return cut ? `, cut by the cap to ${now}` : `, ${now} with its part of what the cap cut from others`;
}

function factsList(mine) {
  const fact = ([name, value]) => el("div", el("dt", brief(name, 24)), el("dd", numberText(value)));
  const facts = mine.facts.length ? el("dl", { class: "facts" }, mine.facts.map(fact)) : el("p", "none");
  return el("div", el("h3", "Facts"), facts);
}

// What it got back, and how the model does on its own test rows.
function afterwards(run) {
  const reward = rewardOf(run, state.round, state.client);
  const audits = auditsText(run, state.round, state.client);
  return [
    reward ? el("p", { class: "aside" }, el("strong", "Reward: "), rewardText(reward)) : null,
    audits ? el("p", { class: "aside" }, el("strong", "Audit on its test rows: "), audits) : null,
  ].filter(Boolean);
}

function auditsText(run, round, client) {
  if (run.audits === null) return "too many for this page; `fedmerit explain` shows each.";
  const told = auditsOf(run, round, client).map(([name, value]) => `${shorten(name)} ${fourText(value)}`);
  return told.length ? listText(told) : null;
}

function auditsOf(run, round, client) {
  const column = (rounds, columns) => spreadOut(columns[rounds.indexOf(round)], run.names.length);
  const value = ([name, rounds, columns]) => [name, column(rounds, columns)[client]];
  return run.audits.map(value).filter(([, found]) => found !== null);
}

// What else the ledger says of the round.
function roundEvents(run) {
  const others = saidIn(run, state.round).filter(({ kind, client }) => kind !== "left-out" || client !== state.client);
  const lines = others.slice(0, FEW).map(({ kind, client, text }) => el("li", whoText(run, kind, client), clean(text)));
  if (others.length > FEW) lines.push(el("li", `and ${others.length - FEW} more, see the notes below`));
  if (!lines.length) return [];
  return [el("div", { class: "aside" }, el("h3", `Also in round ${state.round}`), el("ul", lines))];
}

function whoText(run, kind, client) {
  const what = kind === "refused" ? " refused its reward: " : kind === "left-out" ? " left out: " : " ";
  return client === null ? null : [brief(nameOf(run, client)), what];
}

function showExplanation() {
  const run = RUNS[state.run];
  const none = !numbersOf(run).length;
  $("explain-body").hidden = $("explain-plot").hidden = $("explain-all").hidden = none;
  if (none) return $("explain-says").replaceChildren(`${shorten(run.label)} has no round yet.`);
  const place = run.places.get(state.round);
  const rows = rowsOf(run, state.round);
  const mine = rows.find((row) => row.id === state.client);
  const [first, ...others] = whyTexts();
  $("explain-says").replaceChildren(...first);
  showReason();
  $("explain-body").replaceChildren(...(mine ? whyParts(run, place, rows, mine, others) : []), ...roundEvents(run));
  $("explain-plot").hidden = $("explain-all").hidden = !rows.length;
  refresh("explain-plot");
  if ($("explain-all").open) showRound();
}

function whyParts(run, place, rows, mine, lines) {
  const peers = peersOf(rows, mine);
  const criteria = criteriaTable(run.rounds.priority[place], peers, mine);
  const told = lines.length ? el("ul", { class: "told" }, lines.map((line) => el("li", line))) : null;
  return [...(told ? [told] : []), factsList(mine), criteria, scoreLine(run, place, peers, mine), ...afterwards(run)];
}

// The table of `fedmerit explain --round`, built only when it is opened.
function showRound() {
  const run = RUNS[state.run];
  const place = run.places.get(state.round);
  const several = run.rounds.groups[place] > 1;
  const pick = ({ id }) => button(brief(nameOf(run, id)), () => choose({ client: id }));
  const columns = run.rounds.priority[place].flatMap((name) => [shorten(name, 20), `${shorten(name, 20)} norm.`]);
  const capped = run.rounds.uncapped[place] !== null;
  const lines = rowsOf(run, state.round).map((row) => [
    pick(row),
    ...(several ? [String(row.group + 1)] : []),
    ...row.raw.flatMap((value, i) => [numberText(value), fourText(row.norm[i])]),
    numberText(row.score),
    ...(capped ? [weightText(row.earned)] : []),
    weightText(row.weight),
  ]);
  const ends = ["score", ...(capped ? ["uncapped"] : []), "weight"];
  const header = ["client", ...(several ? ["group"] : []), ...columns, ...ends];
  $("explain-all").querySelector("div").replaceChildren(table(null, header, lines, (i) => i > 0));
}
