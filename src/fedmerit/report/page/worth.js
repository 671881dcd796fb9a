// Worth: contributions of clients next to their weights, as `fedmerit explain --contributions` has them.

function showWorth() {
  const run = RUNS[state.run];
  $("worth").hidden = !run.worth;
  if (!run.worth) return;
  const { methods, rows } = run.worth;
  const signed = (value) => `${value < 0 ? "\u2212" : "+"}${numberText(Math.abs(value))}`;
  const lines = rows.map(([client, weight, totals]) => [
    button(shorten(nameOf(run, client), 24), () => choose({ client })),
    weightText(weight),
    ...totals.map(signed),
  ]);
  $("worth-list").replaceChildren(table(null, ["client", "mean weight", ...methods], lines, (i) => i > 0));
}
