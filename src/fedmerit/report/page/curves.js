// Curves: a line per row over the rounds and the band around it, of the measure that is chosen; a legend switches them.

// A measure: { name, at } as in the data, `title` in the choice, `axis` at the side, `format` of its numbers.
const linesOf = (row, { name, at }) =>
  row.curve.measures.find((each) => each.name === name && each.at === at)?.lines ?? null;

// Over the seeds where there are several; of one run the measure has the band of its clients.
function bandOf(row, measure) {
  const lines = linesOf(row, measure);
  if (lines.length > 1) return { low: lines[1], high: lines[2], of: `range over ${row.tested} seeds` };
  if (measure.name !== "value" || measure.at) return null;
  const mark = (name) => linesOf(row, { name, at: "" })[0];
  return { low: mark("p10"), high: mark("p90"), of: "10th to 90th percentile of clients" };
}

const CURVES = new Map(); // panel -> what shows it again

function curvesPanel(id, measures) {
  const off = new Set(); // "line 0", "band 2": what the legend has switched off
  const chosen = () => measures[Number($(`${id}-measure`).value)];
  const rows = () => ROWS.filter((row) => linesOf(row, chosen()) && row.curve.round.length);

  function bandTraces(row) {
    const band = bandOf(row, chosen());
    if (!band) return [];
    const colour = rowColour(row.index);
    const line = { width: 1, color: faint(colour, 0.5), dash: rowDash(row.index) };
    const visible = !off.has(`band ${row.index}`) && !off.has(`line ${row.index}`);
    const edge = { x: row.curve.round, mode: "lines", line, hoverinfo: "skip", visible };
    return [
      { ...edge, y: band.low },
      { ...edge, y: band.high, fill: "tonexty", fillcolor: faint(colour, 0.1) },
    ];
  }

  function lineTrace(row) {
    const [[line], band] = [linesOf(row, chosen()), bandOf(row, chosen())];
    const { format } = chosen();
    const about = (i) => (band ? `  (${formatted(band.low[i], format)} to ${formatted(band.high[i], format)})` : "");
    return {
      x: row.curve.round,
      y: line,
      name: flat(row.label),
      visible: !off.has(`line ${row.index}`),
      mode: line.length < 2 ? "markers" : "lines",
      line: { color: rowColour(row.index), width: 2.5, dash: rowDash(row.index) },
      customdata: line.map((value, i) => formatted(value, format) + about(i)),
      hovertemplate: "%{customdata}",
    };
  }

  function drawing() {
    const { axis: side, format } = chosen();
    const traces = [...rows().flatMap(bandTraces), ...rows().map(lineTrace)];
    const values = traces.filter(({ visible }) => visible).flatMap(({ y }) => y);
    draw($(`${id}-plot`), traces, {
      height: narrow() ? 300 : 400,
      margin: { l: narrow() ? 52 : 62, r: 12, t: 8, b: 46 }, // known beforehand: finding it out would draw twice
      hovermode: "x unified",
      xaxis: axis({ title: titled("round"), tickformat: "d", unifiedhovertitle: { text: "round %{x}" } }),
      yaxis: axis({ title: titled(side), ...(format === "%" ? percentAxis(values) : { tickformat: "~g" }) }),
    });
  }

  function toggle(part, words, row) {
    const key = `${part} ${row.index}`;
    const pressed = () => String(!off.has(key));
    const onclick = (event) => {
      if (!off.delete(key)) off.add(key);
      event.currentTarget.setAttribute("aria-pressed", pressed());
      refresh(`${id}-plot`);
    };
    const whose = el("span", { class: "unseen" }, ` of ${shorten(row.label)}`);
    return el("button", { type: "button", "aria-pressed": pressed(), onclick }, words, whose);
  }

  function entry(row) {
    const band = bandOf(row, chosen());
    const toggles = [rows().length > 1 ? toggle("line", "line", row) : null, band && toggle("band", band.of, row)];
    return el("span", { class: "entry" }, swatch(row), brief(row.label, narrow() ? 16 : 32), toggles);
  }

  function show() {
    const [some, { axis: side, format }] = [rows(), chosen()];
    $(`${id}-plot`).hidden = !some.length;
    $(`${id}-empty`).hidden = some.length > 0;
    $(`${id}-legend`).replaceChildren(...some.map(entry));
    $(`${id}-legend`).hidden = some.length === 1 && !bandOf(some[0], chosen()); // a single line needs no name
    const end = (row) => formatted(lastOf(linesOf(row, chosen())[0]), format);
    const ends = some.map((row) => `${shorten(row.label)} ends at ${end(row)}`);
    $(`${id}-plot`).setAttribute("aria-label", `${side} over rounds: ${listText(ends)}`);
    refresh(`${id}-plot`);
  }

  if (ROWS.length > 4) ROWS.forEach((row) => off.add(`band ${row.index}`)); // too many bands hide the lines
  $(`${id}-measure`).replaceChildren(...measures.map(({ title }, place) => option(place, title, 0)));
  $(`${id}-measure`).onchange = show; // one, though the panel may be made again
  chart(`${id}-plot`, drawing);
  CURVES.set(id, show);
  show();
}
