// Tables of a study: points of a row's grid on the tuning seeds, and what federation is worth to each client.

function showTuning() {
  $("tuning-tables").replaceChildren(...DATA.tuned.flatMap(pointsOf));
  $("federation-tables").replaceChildren(...DATA.worth.flatMap(pointsOf));
}

function pointsOf({ title, header, rows, below }) {
  const cells = ([point, ...others]) => [brief(point, 60), ...others];
  const shown = table(clean(title), header, rows.map(cells), (i) => i > 0 && i < header.length - 1);
  const notes = below.map((note) => el("li", clean(note)));
  return [scrollBox(clean(title), shown), el("ul", notes)];
}
