// Text: numbers and names as people read them; nothing from a ledger ever becomes HTML.

// Control signs, and those that turn the direction of writing.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]/g;

const $ = (id) => document.getElementById(id);

// An element from a tag, or one made already; then attributes and `on...` listeners, if any; then children.
// Texts become text nodes, never markup; null is left away.
function el(tag, ...parts) {
  const node = typeof tag === "string" ? document.createElement(tag) : tag;
  const attributes = Object.getPrototypeOf(parts[0] ?? "") === Object.prototype ? parts.shift() : {};
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== null && value !== false) node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...parts.flat().filter((part) => part !== null));
  return node;
}

const option = (value, text, chosen) => el("option", { value, selected: value === chosen }, text);

// A button that reads like a link.
const button = (text, onclick) => el("button", { type: "button", class: "link", onclick }, text);

const clean = (text) => String(text).replace(UNSEEN, "\ufffd");

// Head and tail of a long text: names often differ at their end.
function shorten(text, most = 32) {
  const signs = Array.from(clean(text));
  if (signs.length <= most) return signs.join("");
  const tail = Math.floor(most / 4);
  return signs.slice(0, most - tail - 1).join("") + "…" + signs.slice(-tail).join("");
}

// Shortened where long; the whole text then shows on hover.
function brief(text, most) {
  const short = shorten(text, most);
  return el("bdi", { title: short === text ? null : clean(text) }, short);
}

// Plotly reads <b>, <a href>, &amp; and $TeX$ in its texts: give it nothing to read.
function flat(text, most) {
  return shorten(text, most)
    .replace(/</g, "‹")
    .replace(/>/g, "›")
    .replace(/&/g, "&\u200c")
    .replace(/\$(?=.*\$)/g, "·");
}

const plural = (count, one, many = one + "s") => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
const known = (value, show) => (value === null || value === undefined ? "–" : show(value));

// Four digits, as the data keeps them: figures of a column stay comparable.
const fourText = (value) => known(value, (number) => (number ? number.toPrecision(4) : "0"));
const weightText = (weight) => known(weight, (share) => `${fourText(share * 100)} %`);
const accuracyText = (share) => known(share, (value) => `${(value * 100).toFixed(2)} %`);
const formatted = (value, format) => (format === "%" ? accuracyText(value) : fourText(value));
const shareText = (share) => `${plain((share * 100).toPrecision(4))} %`;

const DECIMAL = new Intl.NumberFormat("en", { useGrouping: false, maximumSignificantDigits: 10 });

// As many digits as it has, without an exponent for numbers of everyday size.
function plain(number) {
  const value = Number(number);
  return value !== 0 && Math.abs(value) < 1e-6 ? value.toExponential() : DECIMAL.format(value);
}
const numberText = (value, digits = 5) => known(value, (number) => plain(number.toPrecision(digits)));

function bytesText(bytes) {
  const [unit, name] = bytes < 1e6 ? [1e3, "kB"] : bytes < 1e9 ? [1e6, "MB"] : [1e9, "GB"];
  return `${(bytes / unit).toFixed(1)} ${name}`;
}

function secondsText(seconds) {
  if (seconds < 120) return `${seconds.toFixed(1)} s`;
  return seconds < 7200 ? `${(seconds / 60).toFixed(1)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

// "a, b and c"
function listText(items) {
  return items.length < 2 ? items.join("") : `${items.slice(0, -1).join(", ")} and ${items[items.length - 1]}`;
}

// A table from a header and rows of cells; `numeric` tells which columns stand right; the first cell heads its row.
function table(caption, header, rows, numeric = () => false) {
  const side = (i) => (numeric(i) ? "number" : null);
  const head = header.map((name, i) => el("th", { scope: "col", class: side(i) }, name));
  const cell = (content, i) => (i ? el("td", { class: side(i) }, content) : el("th", { scope: "row" }, content));
  const lines = rows.map((row) => el("tr", row.map(cell)));
  return el("table", caption && el("caption", caption), el("thead", el("tr", head)), el("tbody", lines));
}

// A box of its own that scrolls sideways, also by keyboard.
const scrollBox = (label, content) =>
  el("div", { class: "scroll", role: "region", "aria-label": label, tabindex: "0" }, content);
