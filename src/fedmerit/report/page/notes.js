// Notes: who was left out and why, and what to know of the weights, in the words of the ledger.

const KINDS = new Map([
  ["left-out", "clients left out of a round"],
  ["nobody", "rounds in which nobody could be weighed"],
  ["empty-criterion", "a criterion that is 0 for everybody"],
  ["flat-criterion", "a criterion that does not tell clients apart"],
  ["idle-priority", "a priority that does nothing"],
  ["zero-scores", "every score was 0"],
  ["zero-weights", "updates with weight 0"],
]);
const FEW = 8; // of many, as many are shown at once

function showNotes() {
  const quiet = RUNS.filter((run) => !run.events.length).map((run) => shorten(run.label));
  const silence = quiet.length ? [el("p", `Nothing to note of ${listText(quiet)}.`)] : [];
  $("notes-list").replaceChildren(...RUNS.filter((run) => run.events.length).map(notesOf), ...silence);
}

function notesOf(run) {
  const kinds = run.events.map((group) => kindOf(run, group));
  return el("article", { class: "notes" }, el("h3", swatch(run), brief(run.label)), kinds);
}

function kindOf(run, group) {
  const [first, rest] = [group.texts.slice(0, FEW), group.texts.slice(FEW)];
  const list = el(
    "ul",
    first.map((said) => textOf(run, said)),
  );
  const more = button(`show ${plural(rest.length, "more wording")}`, () => {
    list.append(...rest.map((said) => textOf(run, said)));
    more.remove();
  });
  const open = group.texts.length <= 3 || group.kind === "left-out";
  return el("details", { open }, kindSummary(group), list, rest.length ? more : null);
}

function kindSummary({ kind, count, clients, first, last }) {
  const whom = clients ? `, ${plural(clients, "client")}` : "";
  const when = first === last ? `in round ${first}` : `in rounds ${first} to ${last}`;
  const about = el("span", { class: "about" }, ` ${KINDS.get(kind) ?? ""} `);
  const counts = el("span", { class: "count" }, `${plural(count, "time")}${whom}, ${when}`);
  return el("summary", el("code", shorten(kind)), about, counts);
}

function textOf(run, { text, at }) {
  const go = ([round, client]) => button(`round ${round}`, () => goTo(run, round, client));
  const last = at[at.length - 1];
  const times = [`; ${plural(at.length, "time")}, first in `, go(at[0]), ", last in ", go(last)];
  const where = at.length === 1 ? [" in ", go(at[0])] : times;
  return el("li", el("q", clean(text)), el("span", { class: "where" }, whomText(run, at), where));
}

function whomText(run, at) {
  const ids = [...new Set(at.map(([, client]) => client))].filter((client) => client !== null);
  const names = ids.slice(0, 5).map((id) => shorten(nameOf(run, id), 24));
  if (ids.length > 5) names.push(plural(ids.length - 5, "other"));
  return names.length ? ` ${listText(names)}` : null;
}

function goTo(run, round, client) {
  choose({ run: run.index, round, client: client ?? state.client });
  reveal($("explain"));
}
