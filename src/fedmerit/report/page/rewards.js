// Rewards: the contribution of each client against its reward.

// A client's reward in a round: { entries, taken, before, after, reason }; null where there is none.
function rewardOf(run, round, client) {
  const place = run.rewards ? run.rewards.round.indexOf(round) : -1;
  const row = place < 0 ? -1 : run.rewards.ids[place].indexOf(client);
  if (row < 0) return null;
  const value = (name) => spreadOut(run.rewards[name][place], run.rewards.ids[place].length)[row];
  const refused = saidIn(run, round).find((event) => event.kind === "refused" && event.client === client);
  const [entries, taken, before, after] = ["entries", "taken", "before", "after"].map(value);
  return { entries, taken, before, after, reason: refused?.text };
}

function rewardText({ entries, taken, before, after, reason }) {
  const got = `${plural(entries, "entry", "entries")}; `;
  if (reason) return `${got}refused: ${clean(reason)}`;
  if (before === null || after === null) return `${got}accepted without a test`;
  return `${got}accuracy ${accuracyText(before)} → ${accuracyText(after)}: ${taken ? "accepted" : "not accepted"}`;
}

// The reward: a column of the accounts, or computed from some.
const OUTCOMES = [
  { name: "accuracy", title: "final local accuracy", of: (row) => row.accuracy, format: ".0%" },
  { name: "speed", title: "round of convergence to the level", of: (row) => row.stays, format: "d" },
  { name: "entries", title: "entries received", of: (row) => row.entries, format: "~s", rewarded: true },
  { name: "taken", title: "share of its rewards that it accepted", of: tookShare, format: ".0%", rewarded: true },
];
function tookShare({ given, taken }) {
  return given ? taken / given : null;
}
const outcomes = (run) => OUTCOMES.filter(({ rewarded }) => !rewarded || run.rewards);
const outcome = () => OUTCOMES.find(({ name }) => name === $("rewards-outcome").value) ?? OUTCOMES[0];

const accountOf = (run, id) => ({
  id,
  ...Object.fromEntries(Object.entries(run.accounts.columns).map(([name, column]) => [name, column[id]])),
});

// Highest contribution first.
function accountsOf(run) {
  const byContribution = (a, b) => b.contribution - a.contribution || a.id - b.id;
  run.inOrder ??= run.names.map((_, id) => accountOf(run, id)).sort(byContribution);
  return run.inOrder;
}

const PUT_IN = "contribution: rows trained on";

function drawRewards() {
  const run = RUNS[state.run];
  const rows = accountsOf(run).filter((row) => outcome().of(row) !== null);
  const colours = groupColours();
  const colour = ({ id }) => (run.lineages ? colours[Math.max(groupCells(run).home[id], 0)] : cssValue("accent"));
  const mine = (row) => row.id === state.client;
  const edge = ["paper", "ink"].map(cssValue);
  const line = { width: rows.map((row) => (mine(row) ? 3 : 0.5)), color: rows.map((row) => edge[Number(mine(row))]) };
  const size = rows.map((row) => (mine(row) ? 15 : rows.length > 200 ? 6 : 9));
  const points = {
    type: "scatter",
    mode: "markers",
    x: rows.map((row) => row.contribution),
    y: rows.map((row) => outcome().of(row)),
    customdata: rows.map((row) => row.id),
    marker: { size, line, color: rows.map(colour), opacity: 0.85 },
    hoverinfo: "none",
  };
  const common = { automargin: true };
  draw($("rewards-plot"), [points], {
    height: narrow() ? 320 : 420,
    hovermode: "closest",
    xaxis: axis({ ...common, title: titled(PUT_IN), rangemode: "tozero", tickformat: "~s" }),
    yaxis: axis({ ...common, title: titled(outcome().title), tickformat: outcome().format }),
  });
}

function accountText(run, id) {
  const row = accountOf(run, id);
  const did = `${plural(row.rounds, "round")}, trained on ${plural(row.contribution, "row")}`;
  const got = `accepted ${row.taken} of ${plural(row.given, "reward")} with ${plural(row.entries, "entry", "entries")}`;
  const ends = row.accuracy === null ? "no test rows" : `final accuracy ${accuracyText(row.accuracy)}`;
  return `${shorten(nameOf(run, id))}: ${[did, ...(row.given ? [got] : []), ends].join(", ")}`;
}

function showRewards() {
  const run = RUNS[state.run];
  const none = !run.accounts;
  for (const part of ["plot", "says", "sums", "all"]) $(`rewards-${part}`).hidden = none;
  $("rewards-outcome").closest("label").hidden = none;
  $("rewards-empty").hidden = !none;
  $("rewards-empty").textContent = `${shorten(run.label)} has no evaluated round yet.`;
  if (none) return;
  const wanted = outcome().rewarded && !run.rewards ? OUTCOMES[0] : outcome();
  const told = ({ title }) => title.replace("the level", shareText(run.accounts.level));
  $("rewards-outcome").replaceChildren(...outcomes(run).map((each) => option(each.name, told(each), wanted.name)));
  $("rewards-sums").replaceChildren(...sumLines(run).map((line) => el("li", line)));
  sayAccount();
  if ($("rewards-all").open) showAccounts();
  refresh("rewards-plot");
}

const signed = (value) => known(value, (rho) => (rho > 0 ? "+" : "") + rho.toFixed(2).replace("-", "−"));

function sumLines(run) {
  const { correlations, classes, gap } = run.accounts;
  const named = [
    ["final accuracy", correlations.accuracy],
    ["the round of convergence (negative is fair)", correlations.speed],
    ["entries received", run.rewards ? correlations.entries : null],
  ];
  const ranks = named.filter(([, rho]) => rho !== null).map(([name, rho]) => `with ${name} ${signed(rho)}`);
  const means = classes.map(([edge, value]) => `${accuracyText(value)} up to ${plural(edge, "round")}`);
  return [
    ...(run.rewards ? [takenText(run.rewards)] : []),
    ...(ranks.length ? [`Rank correlation of contribution: ${listText(ranks)}.`] : []),
    ...(means.length > 1
      ? [`Mean final accuracy by number of rounds: ${listText(means)}; gap ${accuracyText(gap)}.`]
      : []),
  ];
}

function takenText({ ids, taken, refused, bytes }) {
  const sum = (values) => values.reduce((all, value) => all + value, 0);
  const all = sum(ids.map((clients) => clients.length));
  const took = sum(taken.map((column, i) => sum(spreadOut(column, ids[i].length))));
  const [unable, sent] = [sum(refused), bytesText(sum(bytes))];
  const could = unable ? `, ${unable.toLocaleString("en")} failed` : "";
  return `${took.toLocaleString("en")} of ${plural(all, "reward")} were accepted${could}; ${sent} were sent.`;
}

function sayAccount() {
  const run = RUNS[state.run];
  if (run.accounts) $("rewards-says").textContent = `${accountText(run, state.client)}.`;
}

// Every account, built only when it is opened.
function showAccounts() {
  const run = RUNS[state.run];
  const rewarded = run.rewards !== null;
  const pick = (id) => button(brief(nameOf(run, id)), () => choose({ client: id }));
  const lines = accountsOf(run).map((row) => [
    pick(row.id),
    String(row.rounds),
    row.contribution.toLocaleString("en"),
    ...(rewarded ? [`${row.taken} of ${row.given}`, row.entries.toLocaleString("en")] : []),
    known(row.reached, String),
    known(row.stays, String),
    accuracyText(row.accuracy),
  ]);
  const level = shareText(run.accounts.level);
  const got = rewarded ? ["accepted", "entries"] : [];
  const header = ["client", "rounds", "rows", ...got, `first at ${level}`, `stays at ${level}`, "final accuracy"];
  $("rewards-all").querySelector("div").replaceChildren(table(null, header, lines, (i) => i > 0));
}

function listenToRewards(place) {
  const client = ({ customdata }) => customdata;
  onHover(place, (point) => accountText(RUNS[state.run], client(point)));
  place.on("plotly_click", ({ points: [point] }) => choose({ client: client(point) }));
  onArrows(place, (right, down) => {
    const order = accountsOf(RUNS[state.run]).map(({ id }) => id); // by contribution, highest first
    const next = order.indexOf(state.client) - right + down;
    if (next in order) choose({ client: order[next] });
  });
}
