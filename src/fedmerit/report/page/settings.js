// Settings: the configuration of each run, what differs between runs, and where they ran.

const KEPT = "As kept in the ledger, defaults included.";

function showSettings() {
  const differ = DATA.differs.config;
  const same = RUNS.length > 1 ? " They are the same in all runs." : "";
  $("settings-lead").textContent = KEPT + (differ.length ? " What differs comes first and is marked below." : same);
  $("settings-differ").hidden = !differ.length;
  $("settings-differ").replaceChildren(table("What differs", ["setting", ...runNames()], differ.map(differRow)));
  const marked = new Set(differ.map(({ key }) => key));
  $("settings-runs").replaceChildren(...RUNS.map((run) => configOf(run, marked)));
}

const runNames = () => RUNS.map((run) => brief(run.label, 24));
const differRow = ({ key, values }) => [
  el("code", clean(key)),
  ...values.map((value) => el("code", known(value, clean))),
];

function configOf(run, marked) {
  const lines = el(
    "pre",
    { tabindex: "0" },
    run.config.map((line) => configLine(line, marked)),
  );
  const body = run.config.length ? lines : el("p", { class: "empty" }, "The ledger keeps no settings.");
  const open = RUNS.length <= 3 && !narrow();
  return el("details", { open }, el("summary", swatch(run), brief(run.label)), body);
}

function configLine([key, name, value], marked) {
  const text = clean(value ? `${name} = ${value}` : name);
  return el("span", { class: value ? null : "head" }, marked.has(key) ? el("mark", text) : text, "\n");
}

function showEnvironment() {
  const keys = [...new Set(RUNS.flatMap((run) => run.environment.map(([key]) => key)))];
  const marked = new Set(DATA.differs.environment.map(({ key }) => key));
  const value = (run, key) => run.environment.find(([name]) => name === key)?.[2];
  const cell = (run, key) => el(marked.has(key) ? "mark" : "span", { class: "long" }, known(value(run, key), clean));
  const folders = RUNS.map((run) => el("span", { class: "long" }, clean(run.folder)));
  const rows = keys.map((key) => [clean(key), ...RUNS.map((run) => cell(run, key))]);
  $("environment").replaceChildren(table(null, ["", ...runNames()], [["folder", ...folders], ...rows]));
}
