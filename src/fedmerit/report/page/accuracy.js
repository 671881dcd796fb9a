// Accuracy: a line per run over the rounds, the band of its clients, and a legend that switches them.

const off = new Set(); // "line 0", "band 2": what the legend has switched off
const tested = RUNS.filter((run) => run.curve.round.length);

function bandTraces(run) {
  const { round, p10, p90 } = run.curve;
  const colour = runColour(run.index);
  const line = { width: 1, color: faint(colour, 0.55), dash: runDash(run.index) };
  const edge = { x: round, mode: "lines", line, hoverinfo: "skip", visible: !off.has(`band ${run.index}`) };
  const upper = { ...edge, y: p90, fill: "tonexty", fillcolor: faint(colour, 0.08) };
  return [{ ...edge, y: p10 }, upper];
}

function lineTrace(run) {
  const { round, accuracy, p10, p90 } = run.curve;
  return {
    x: round,
    y: accuracy,
    name: flat(run.label),
    visible: !off.has(`line ${run.index}`),
    mode: round.length < 2 ? "markers" : "lines",
    line: { color: runColour(run.index), width: 2.5, dash: runDash(run.index) },
    customdata: round.map((_, i) => `${accuracyText(p10[i])} to ${accuracyText(p90[i])}`),
    hovertemplate: "%{y:.2%}  (clients %{customdata})",
  };
}

function drawAccuracy() {
  if (!tested.length) return;
  const common = { automargin: true };
  draw($("accuracy-plot"), [...tested.flatMap(bandTraces), ...tested.map(lineTrace)], {
    height: narrow() ? 300 : 400,
    hovermode: "x unified",
    xaxis: axis({ ...common, title: titled("round"), tickformat: "d", unifiedhovertitle: { text: "round %{x}" } }),
    yaxis: axis({ ...common, title: titled("accuracy"), tickformat: ".0%" }),
  });
}

function toggle(part, words, run) {
  const key = `${part} ${run.index}`;
  const pressed = () => String(!off.has(key));
  const onclick = (event) => {
    if (!off.delete(key)) off.add(key);
    event.currentTarget.setAttribute("aria-pressed", pressed());
    drawAccuracy();
  };
  const whose = el("span", { class: "unseen" }, ` of ${shorten(run.label)}`);
  return el("button", { type: "button", "aria-pressed": pressed(), onclick }, words, whose);
}

function showLegend() {
  $("accuracy-plot").hidden = !tested.length;
  $("accuracy-empty").hidden = tested.length > 0;
  if (tested.length > 3) tested.forEach((run) => off.add(`band ${run.index}`)); // too many bands hide the lines
  const toggles = (run) => [toggle("line", "line", run), toggle("band", "10–90 % band", run)];
  const entry = (run) => el("span", { class: "entry" }, swatch(run), brief(run.label), toggles(run));
  $("accuracy-legend").replaceChildren(...tested.map(entry));
  const ends = tested.map((run) => `${shorten(run.label)} ends at ${accuracyText(run.figures.accuracy)}`);
  $("accuracy-plot").setAttribute("aria-label", `Accuracy over rounds: ${listText(ends)}`);
}
