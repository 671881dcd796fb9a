// Accuracy: of the model on all test rows, and of the clients on their own test rows.

const mark = (name, short, title) => ({ name, at: "", short, title, axis: title, format: "%" });

const ACCURACY = [
  { ...mark("accuracy", "accuracy", "of all test rows"), axis: "accuracy" },
  { ...mark("p50", "median client", "of the median client"), axis: "median client's accuracy" },
  mark("p10", "10th percentile", "10th percentile of the clients"),
  mark("p90", "90th percentile", "90th percentile of the clients"),
];

const EPSILON = { name: "epsilon", at: "", title: "privacy spent (epsilon)", axis: "epsilon", format: "" };
const CLIP = { name: "clip", at: "", title: "clipping norm of updates (clip)", axis: "clip", format: "" };
const VOID = "Some runs drew the noise from their seed: they have no privacy guarantee.";
const PRIVATE = "Epsilon covers the model only. This page shows facts of clients: do not publish it.";

const OF_CLIENTS = "With one seed, the band is the 10th to the 90th percentile of the clients' local accuracies.";
const OF_SEEDS = "With several seeds, the line is their mean and the band their range.";

function showAccuracy() {
  const [one, several] = [ROWS.some((row) => row.tested === 1), ROWS.some((row) => row.tested > 1)];
  const spent = ROWS.some((row) => linesOf(row, EPSILON));
  const isVoid = ROWS.some((row) => row.events.some(({ kind }) => kind === "privacy-void"));
  const about = [one ? OF_CLIENTS : "", several ? OF_SEEDS : "", spent ? PRIVATE : "", isVoid ? VOID : ""];
  $("accuracy-how").textContent = about.join(" ");
  const ofPrivacy = [EPSILON, CLIP].filter((measure) => ROWS.some((row) => linesOf(row, measure)));
  curvesPanel("accuracy", [...ACCURACY, ...ofPrivacy]);
}
