// Settings: the configuration of each row, what differs between rows, and where its runs were made.

const KEPT = "As kept in the ledger, defaults included.";

function showSettings() {
  const differ = DATA.differs.config;
  const same = ROWS.length > 1 ? " They are the same in all." : "";
  $("settings-lead").textContent = KEPT + (differ.length ? " What differs comes first and is marked below." : same);
  $("settings-differ").hidden = !differ.length;
  $("settings-differ").replaceChildren(table("What differs", ["setting", ...rowNames()], differ.map(differRow)));
  const marked = new Set(differ.map(({ key }) => key));
  $("settings-runs").replaceChildren(...ROWS.map((row) => configOf(row, marked)));
}

const rowNames = () => ROWS.map((row) => brief(row.label, 24));
const differRow = ({ key, values }) => [
  el("code", clean(key)),
  ...values.map((value) => el("code", known(value, clean))),
];

function configOf(row, marked) {
  const lines = el(
    "pre",
    { tabindex: "0" },
    row.config.map((line) => configLine(line, marked)),
  );
  const body = row.config.length ? lines : el("p", { class: "empty" }, "The ledger keeps no settings.");
  const open = ROWS.length <= 3 && !narrow();
  return el("details", { open }, el("summary", swatch(row), brief(row.label)), body);
}

function configLine([key, name, value], marked) {
  const text = clean(value ? `${name} = ${value}` : name);
  return el("span", { class: value ? null : "head" }, marked.has(key) ? el("mark", text) : text, "\n");
}

function showEnvironment() {
  const keys = [...new Set(ROWS.flatMap((row) => row.environment.map(([key]) => key)))];
  const marked = new Set(DATA.differs.environment);
  const value = (row, key) => row.environment.find(([name]) => name === key)?.[2];
  const cell = (row, key) => el(marked.has(key) ? "mark" : "span", { class: "long" }, known(value(row, key), clean));
  const rows = keys.map((key) => [clean(key), ...ROWS.map((row) => cell(row, key))]);
  $("environment").replaceChildren(table(null, ["", ...rowNames()], [["folder", ...ROWS.map(foldersOf)], ...rows]));
}

function foldersOf(row) {
  const [first, ...more] = row.runs.map((index) => clean(RUNS[index].folder));
  return el("span", { class: "long" }, more.length ? `${first} and ${plural(more.length, "other")}` : first);
}
