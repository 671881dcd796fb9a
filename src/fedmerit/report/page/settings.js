// Settings: the configuration of each row, what differs between rows, and the environment of its runs.

const KEPT = "All settings, defaults included.";

function showSettings() {
  const differ = DATA.differs.config;
  const same = ROWS.length > 1 ? " They are the same in all rows." : "";
  $("settings-lead").textContent = KEPT + (differ.length ? " Those that differ are marked." : same);
  $("settings-differ").hidden = !differ.length;
  const value = (row, key) => el("code", known(differ.find((each) => each.key === key).values[row.index], clean));
  const keys = differ.map(({ key }) => key);
  $("settings-differ").replaceChildren(crossed("Settings that differ", "setting", keys, value));
  const marked = new Set(differ.map(({ key }) => key));
  $("settings-runs").replaceChildren(...ROWS.map((row) => configOf(row, marked)));
}

// A column per row, or a line per row where these are many.
function crossed(caption, corner, keys, value) {
  const names = ROWS.map((row) => [swatch(row), brief(row.label, 24)]);
  const [few, words] = [ROWS.length <= 3, keys.map((key) => el("code", clean(key)))];
  const byKey = () => keys.map((key, i) => [words[i], ...ROWS.map((row) => value(row, key))]);
  const byRow = () => ROWS.map((row, i) => [names[i], ...keys.map((key) => value(row, key))]);
  return table(caption, few ? [corner, ...names] : ["row", ...words], few ? byKey() : byRow());
}

function configOf(row, marked) {
  const lines = el(
    "pre",
    { tabindex: "0" },
    row.config.map((line) => configLine(line, marked)),
  );
  const body = row.config.length ? lines : el("p", { class: "empty" }, "The ledger has no settings.");
  const recipe = keptIn(row, "recipe");
  const python = recipe ? el("details", el("summary", "recipe in Python"), el("code", clean(recipe))) : null;
  return el("details", el("summary", swatch(row), brief(row.label)), body, python);
}

// What the ledgers of a row say of where they were made.
const keptIn = (row, key) => row.environment.find(([name]) => name === key)?.[2];

function configLine([key, name, value], marked) {
  const text = clean(value ? `${name} = ${value}` : name);
  return el("span", { class: value ? null : "head" }, marked.has(key) ? el("mark", text) : text, "\n");
}

function showEnvironment() {
  const keys = [...new Set(ROWS.flatMap((row) => row.environment.map(([key]) => key)))];
  const marked = new Set(DATA.differs.environment);
  const cell = (row, key) => el(marked.has(key) ? "mark" : "span", { class: "long" }, known(keptIn(row, key), clean));
  const value = (row, key) => (key === "folder" ? foldersOf(row) : cell(row, key));
  const shown = keys.filter((key) => key !== "recipe"); // long, and no matter of where: it stands with the settings
  $("environment").replaceChildren(crossed(null, "environment", [...shown, "folder"], value));
}

function foldersOf(row) {
  const [first, ...more] = row.runs.map((index) => clean(RUNS[index].folder));
  return el("span", { class: "long" }, more.length ? `${first} and ${plural(more.length, "other")}` : first);
}
