// Notes: clients that were left out and why, and messages about the weights, as in the ledger.

const KINDS = new Map([
  ["left-out", "clients left out of a round"],
  ["refused", "rewards that a client could not take"],
  ["nobody", "rounds without any accepted update"],
  ["data", "preparation of the data"],
  ["initial", "how the first model was made"],
  ["stopped", "why the run stopped early"],
  ["empty-criterion", "a criterion that is 0 for all clients"],
  ["flat-criterion", "a criterion that is the same for all clients"],
  ["idle-priority", "a priority without effect"],
  ["no-search", "a search with a single candidate"],
  ["undefined-objective", "an objective that the server's rows cannot measure"],
  ["zero-scores", "every score was 0"],
  ["zero-weights", "updates with weight 0"],
  ["excluded", "outliers that got weight 0"],
  ["sampled", "contributions that were estimated by sampling"],
  ["cap", "weights above the cap"],
  ["claim-cut", "reported facts that were reduced"],
  ["claim-changed", "reported facts that changed"],
  ["scaled", "values above the public scale of their criterion"],
  ["clipped", "updates that were clipped"],
  ["privacy-void", "noise from the run's seed: no privacy"],
  ["hidden", "updates that the server did not see one by one"],
  ["stranger", "nodes with an unknown name"],
  ["constant", "a final model that is not better than one answer for all"],
]);
const FEW = 8; // of many, as many are shown at once

// Number of messages of each kind by row; the messages themselves are those of the selected run.
function showCounts() {
  const kinds = [...new Set(ROWS.flatMap((row) => row.events.map(({ kind }) => kind)))];
  $("notes-counts").hidden = RUNS.length === 1 || !kinds.length;
  const times = (row, kind) => row.events.find((each) => each.kind === kind)?.count ?? 0;
  const lines = ROWS.map((row) => [
    [swatch(row), brief(row.label)],
    ...kinds.map((kind) => times(row, kind).toLocaleString("en")),
  ]);
  const header = ["messages", ...kinds.map((kind) => el("code", shorten(kind)))];
  $("notes-counts").replaceChildren(table(null, header, lines, (i) => i > 0));
}

function showNotes() {
  const run = RUNS[state.run];
  const silence = run.events.length ? [] : [el("p", `${shorten(run.label)} logged no message.`)];
  const kinds = run.events.map((group) => kindOf(run, group));
  $("notes-list").replaceChildren(el("article", { class: "notes" }, kinds), ...silence);
}

function kindOf(run, group) {
  const [first, rest] = [group.texts.slice(0, FEW), group.texts.slice(FEW)];
  const list = el(
    "ul",
    first.map((said) => textOf(run, said)),
  );
  const more = button(`show ${plural(rest.length, "more message")}`, () => {
    list.append(...rest.map((said) => textOf(run, said)));
    more.remove();
  });
  const open = group.texts.length <= 3 || group.kind === "left-out";
  return el("details", { open }, kindSummary(group), list, rest.length ? more : null);
}

function kindSummary({ kind, count, clients, first, last }) {
  const whom = clients ? `, ${plural(clients, "client")}` : "";
  const once = first ? `in round ${first}` : "before the first round";
  const when = first === last ? once : `in rounds ${first} to ${last}`;
  const about = el("span", { class: "about" }, ` ${KINDS.get(kind) ?? ""} `);
  const counts = el("span", { class: "count" }, `${plural(count, "time")}${whom}, ${when}`);
  return el("summary", el("code", shorten(kind)), about, counts);
}

function textOf(run, { text, at }) {
  const link = (round, client) => button(`round ${round}`, () => goTo(round, client));
  const go = ([round, client]) => (run.places.has(round) ? link(round, client) : "the start");
  const times = [`; ${plural(at.length, "time")}, first in `, go(at[0]), ", last in ", go(lastOf(at))];
  const where = at.length === 1 ? [" in ", go(at[0])] : times;
  return el("li", el("q", clean(text)), el("span", { class: "where" }, whomText(run, at), where));
}

function whomText(run, at) {
  const ids = [...new Set(at.map(([, client]) => client))].filter((client) => client !== null);
  const names = ids.slice(0, 5).map((id) => shorten(nameOf(run, id), 24));
  if (ids.length > 5) names.push(plural(ids.length - 5, "other"));
  return names.length ? ` ${listText(names)}` : null;
}

function goTo(round, client) {
  choose({ round, client: client ?? state.client });
  reveal($("explain"));
}
