// Theme: plotly takes its colours and sizes from our style sheet, again whenever light turns to dark or to paper.

const PAPER_WIDTH = 690; // px: an A4 page between its margins
const DASHES = ["solid", "dash", "dot", "dashdot"];
let printing = false;

const cssValue = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const narrow = () => !printing && window.innerWidth < 640;
const rowColour = (index) => cssValue(`run-${1 + (index % 7)}`);
const rowDash = (index) => DASHES[(Math.floor(index / 7) + index) % DASHES.length];

// A hex colour of the style sheet, see-through.
const faint = (colour, opacity) => `${colour}${Math.round(opacity * 255).toString(16)}`;

function axis(extra) {
  const [ink, line] = [cssValue("muted"), cssValue("line")];
  return {
    gridcolor: line,
    linecolor: line,
    zeroline: false,
    tickfont: { color: ink },
    fixedrange: narrow(),
    ...extra,
  };
}

// Ticks with as many digits as tell them apart; a nearly flat line gets a range of two percentage points.
function percentAxis(values) {
  const known = values.filter((value) => value !== null);
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const middle = (low + high) / 2;
  const range = high - low < 0.02 ? { range: [middle - 0.011, middle + 0.011] } : {};
  return { tickformat: ".2~%", ...range };
}

const titled = (text) => ({ text, font: { color: cssValue("muted"), size: 12 }, standoff: 8 });

function layout(extra) {
  const [ink, muted, clear] = [cssValue("ink"), cssValue("muted"), "rgba(0,0,0,0)"];
  return {
    paper_bgcolor: clear,
    plot_bgcolor: clear,
    font: { family: "system-ui, sans-serif", size: 12, color: ink },
    margin: { l: 8, r: 8, t: 8, b: 8 },
    showlegend: false,
    dragmode: narrow() ? false : "zoom", // on a phone a finger on a chart scrolls the page
    hoverlabel: { bgcolor: cssValue("panel"), bordercolor: cssValue("line"), font: { color: ink, size: 12 } },
    modebar: { bgcolor: clear, color: muted, activecolor: cssValue("accent") },
    ...(printing ? { width: PAPER_WIDTH } : { autosize: true }),
    ...extra,
  };
}

const CONFIG = {
  responsive: true,
  displaylogo: false,
  doubleClick: "reset",
  modeBarButtons: [["toImage", "resetScale2d"]],
};

// One tip for all charts: ours takes names as text, plotly's would read them as markup.
function showTip(event, text) {
  const tip = $("tip");
  tip.textContent = text;
  tip.hidden = false;
  const space = document.documentElement.clientWidth - tip.offsetWidth - 8;
  tip.style.left = `${Math.max(8, Math.min(event.clientX + 14, space))}px`;
  tip.style.top = `${event.clientY + 18}px`;
}
const hideTip = () => {
  $("tip").hidden = true;
};

// Paper cannot unfold anything: what is folded is printed open, but for the tables of all clients.
let folded = [];
function unfoldForPaper(begins) {
  if (begins) folded = [...document.querySelectorAll("details:not([open]):not(#explain-all)")];
  for (const details of folded) details.open = begins;
}

// Redraw when the colours change: the reader's system turns dark or light, or the page goes to paper.
function watchTheme() {
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redrawAll());
  const print = (begins) => () => {
    printing = begins;
    unfoldForPaper(begins);
    document.documentElement.classList.toggle("printing", begins);
    redrawAll(begins);
  };
  window.addEventListener("beforeprint", print(true));
  window.addEventListener("afterprint", print(false));
}
