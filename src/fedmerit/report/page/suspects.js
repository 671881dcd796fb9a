// Suspects: clients of which something odd was seen again and again, and what was seen; nobody is accused.

function showSuspects() {
  const run = RUNS[state.run];
  const later = el("p", "Being counted; this comes with the next rounds.");
  if (!run.suspects) return $("suspects-list").replaceChildren(later);
  const { rule, suspects, planted, clients } = run.suspects;
  $("suspects-rule").textContent = `${rule[0].toUpperCase()}${rule.slice(1)}.`;
  const lines = suspects.map((one) => [
    button(shorten(nameOf(run, one.client), 24), () => goTo(one.since, one.client)),
    String(one.since),
    `${one.odd} of ${one.answered}`,
    clean(one.summary),
  ]);
  const header = ["client", "since round", "rounds", "what was seen"];
  const nobody = el("p", `Nobody of ${plural(clients, "client")} stands out in ${shorten(run.label)}.`);
  $("suspects-list").replaceChildren(lines.length ? table(null, header, lines, (i) => i === 1) : nobody);
  $("suspects-truth").hidden = !planted;
  $("suspects-truth").textContent = planted ? truthText(run, planted) : "";
}

// Known from the configuration alone: no recipe and no rule above ever saw it.
function truthText(run, { clients, precision, recall }) {
  const share = (value) => (value === null ? "unknown" : `${Math.round(100 * value)} %`);
  const names = clients.map((id) => shorten(nameOf(run, id), 24));
  return (
    `The configuration planted ${plural(clients.length, "attacker")}: ${listText(names)}. ` +
    `Of the suspects ${share(precision)} attack; of the attackers ${share(recall)} are suspected.`
  );
}
