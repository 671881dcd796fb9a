// Text: numbers and names as people read them; nothing from a ledger ever becomes HTML.

const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]/g; // control signs, and those that turn the direction

const $ = (id) => document.getElementById(id);

// An element with attributes, `on...` listeners and children; texts become text nodes, null is left away.
function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== null && value !== false) node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null));
  return node;
}

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

// Plotly reads <b>, <a href> and &amp; in its texts: give it nothing to read.
function flat(text, most) {
  return shorten(text, most).replace(/</g, "‹").replace(/>/g, "›").replace(/&(?=#?\w+;)/g, "＆");
}

const plural = (count, one, many = one + "s") => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
const known = (value, show) => (value === null || value === undefined ? "–" : show(value));

const weightText = (weight) => (weight ? `${plain((weight * 100).toPrecision(4))} %` : "0 %");
const accuracyText = (share) => known(share, (value) => `${(value * 100).toFixed(2)} %`);
const shareText = (share) => `${Math.round(share * 100)} %`;

// As many digits as it has, without an exponent for numbers of everyday size.
function plain(number) {
  const value = Number(number);
  return value !== 0 && Math.abs(value) < 1e-6 ? value.toExponential() : value.toLocaleString("en", { useGrouping: false, maximumSignificantDigits: 10 });
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
  const cells = (row) => row.map((cell, i) => el(i ? "td" : "th", { scope: i ? null : "row", class: numeric(i) ? "number" : null }, cell));
  return el("table", null,
    caption ? el("caption", null, caption) : null,
    el("thead", null, el("tr", null, header.map((name, i) => el("th", { scope: "col", class: numeric(i) ? "number" : null }, name)))),
    el("tbody", null, rows.map((row) => el("tr", null, cells(row)))));
}
