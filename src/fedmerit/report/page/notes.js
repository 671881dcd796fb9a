// Notes and settings: what was left out and what to know, and how each run was made.

const KINDS = new Map([
  ["left-out", "clients left out of a round"],
  ["nobody", "rounds in which nobody could be weighed"],
  ["empty-criterion", "a criterion that is 0 for everybody"],
  ["flat-criterion", "a criterion that does not tell clients apart"],
  ["idle-priority", "a priority that does nothing"],
  ["zero-scores", "every score was 0"],
  ["zero-weights", "updates with weight 0"],
]);
const FEW = 8; // texts of a kind shown at once

function showNotes() {
  const loud = RUNS.filter((run) => run.events.length);
  const quiet = RUNS.filter((run) => !run.events.length).map((run) => shorten(run.label));
  const silent = quiet.length ? [el("p", { class: "quiet" }, `Nothing to note of ${listText(quiet)}.`)] : [];
  $("notes-list").replaceChildren(...loud.map(notesOf), ...silent);
}

function notesOf(run) {
  return el("article", { class: "notes" }, el("h3", null, swatch(run.index), brief(run.label)), run.events.map((group) => kindOf(run, group)));
}

function kindOf(run, group) {
  const about = KINDS.get(group.kind);
  const whom = group.clients ? ` of ${plural(group.clients, "client")}` : "";
  const summary = el("summary", null, el("code", null, shorten(group.kind)), el("span", { class: "about" }, about ? ` ${about}` : null),
    el("span", { class: "count" }, ` ${plural(group.count, "time")}${whom}, ${spanText(group.first, group.last)}`));
  const list = el("ul", null, group.texts.slice(0, FEW).map((said) => textOf(run, said)));
  const rest = group.texts.slice(FEW);
  const more = rest.length ? el("button", { type: "button", class: "link", onclick: (event) => {
    list.append(...rest.map((said) => textOf(run, said)));
    event.currentTarget.remove();
  } }, `show ${plural(rest.length, "more wording")}`) : null;
  return el("details", { open: group.kind === "left-out" || group.kind === "nobody" }, summary, list, more);
}

const spanText = (first, last) => (first === last ? `in round ${first}` : `in rounds ${first} to ${last}`);

function textOf(run, { text, at }) {
  const go = ([round, client]) => el("button", { type: "button", class: "link", onclick: () => {
    choose({ run: run.index, round, client: client ?? undefined });
    reveal($("explain"));
  } }, `round ${round}`);
  const ends = at.length === 1 ? [" in ", go(at[0])] : [`; ${plural(at.length, "time")}, first in `, go(at[0]), ", last in ", go(at[at.length - 1])];
  const ids = [...new Set(at.map(([, client]) => client).filter((client) => client !== null))];
  const names = ids.slice(0, 5).map((id) => shorten(nameOf(run, id), 24)).concat(ids.length > 5 ? plural(ids.length - 5, "other") : []);
  return el("li", null, el("q", null, clean(text)), el("span", { class: "where" }, names.length ? ` ${listText(names)}` : null, ends));
}

function showSettings() {
  const differ = DATA.differs.config;
  $("settings-lead").textContent = RUNS.length === 1 ? "As kept in the ledger, defaults included."
    : differ.length ? "As kept in the ledgers, defaults included. What differs comes first and is marked below."
      : "As kept in the ledgers, defaults included; the same in all runs.";
  const labels = () => RUNS.map((run) => brief(run.label, 24));
  $("settings-differ").hidden = !differ.length;
  $("settings-differ").replaceChildren(table("What differs", ["setting", ...labels()],
    differ.map(({ key, values }) => [el("code", null, key), ...values.map((value) => el("code", null, known(value, (text) => shorten(text, 60))))])));
  const marked = new Set(differ.map(({ key }) => key));
  $("settings-runs").replaceChildren(...RUNS.map((run) => configOf(run, marked)));
  showEnvironment(labels);
}

function configOf(run, marked) {
  const line = ([key, name, value]) => {
    const text = clean(value ? `${name} = ${value}` : name);
    return el("span", { class: value ? "line" : "line head" }, marked.has(key) ? el("mark", null, text) : text, "\n");
  };
  const body = run.config.length ? el("pre", { tabindex: "0" }, run.config.map(line)) : el("p", { class: "empty" }, "The ledger keeps no settings.");
  return el("details", { open: RUNS.length <= 3 }, el("summary", null, swatch(run.index), brief(run.label)), body);
}

function showEnvironment(labels) {
  const keys = [...new Set(RUNS.flatMap((run) => run.environment.map(([key]) => key)))];
  const marked = new Set(DATA.differs.environment.map(({ key }) => key));
  const value = (run, key) => run.environment.find(([name]) => name === key)?.[2] ?? "–";
  const cell = (run, key) => el(marked.has(key) ? "mark" : "span", { class: "long" }, clean(value(run, key)));
  const rows = [["folder", ...RUNS.map((run) => el("span", { class: "long" }, clean(run.folder)))], ...keys.map((key) => [clean(key), ...RUNS.map((run) => cell(run, key))])];
  $("environment").replaceChildren(table(null, ["", ...labels()], rows));
}
