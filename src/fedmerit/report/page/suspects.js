// Suspects: clients with repeated anomalies, and what they were; no proof of an attack.

function showSuspects() {
  const run = RUNS[state.run];
  const later = el("p", "Not computed yet; the next rounds bring it.");
  if (!run.suspects) return $("suspects-list").replaceChildren(later);
  const { rule, suspects, planted, clients } = run.suspects;
  $("suspects-rule").textContent = rule;
  const lines = suspects.map((one) => [
    button(shorten(nameOf(run, one.client), 24), () => goTo(one.since, one.client)),
    String(one.since),
    `${one.odd} of ${one.answered}`,
    clean(one.summary),
  ]);
  const header = ["client", "since round", "rounds", "evidence"];
  const nobody = el("p", `None of ${plural(clients, "client")} is suspected in ${shorten(run.label)}.`);
  $("suspects-list").replaceChildren(lines.length ? table(null, header, lines, (i) => i === 1) : nobody);
  $("suspects-truth").hidden = !planted;
  $("suspects-truth").textContent = planted ? truthText(run, planted) : "";
}

// From the configuration: no recipe and no rule above sees it.
function truthText(run, { clients, precision, recall }) {
  const share = (value, text) => (value === null ? "" : ` ${Math.round(100 * value)} % of the ${text}.`);
  const names = clients.map((id) => shorten(nameOf(run, id), 24));
  const found = share(precision, "suspects attack") + share(recall, "attackers are suspected");
  return `The configuration has ${plural(clients.length, "attacker")}: ${listText(names)}.${found}`;
}
