// Rewards: what a client got back in a round.

// A client's reward in a round: { entries, taken, before, after, reason }; null where there is none.
function rewardOf(run, round, client) {
  const place = run.rewards ? run.rewards.round.indexOf(round) : -1;
  const row = place < 0 ? -1 : run.rewards.ids[place].indexOf(client);
  if (row < 0) return null;
  const value = (name) => spreadOut(run.rewards[name][place], run.rewards.ids[place].length)[row];
  const refused = saidIn(run, round).find((event) => event.kind === "refused" && event.client === client);
  const [entries, taken, before, after] = ["entries", "taken", "before", "after"].map(value);
  return { entries, taken, before, after, reason: refused?.text };
}

function rewardText({ entries, taken, before, after, reason }) {
  const got = `${plural(entries, "entry", "entries")}; `;
  if (reason) return `${got}refused: ${clean(reason)}`;
  if (before === null || after === null) return `${got}accepted without a test`;
  return `${got}accuracy ${accuracyText(before)} → ${accuracyText(after)}: ${taken ? "accepted" : "not accepted"}`;
}
