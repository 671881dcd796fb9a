// Accuracy: of the model on all test rows, and of the clients on their own.

const mark = (name, short, title) => ({ name, at: "", short, title, axis: title, format: "%" });

const ACCURACY = [
  { ...mark("accuracy", "accuracy", "of all test rows"), axis: "accuracy" },
  { ...mark("p50", "median client", "of the median client"), axis: "median client's accuracy" },
  mark("p10", "10th percentile", "10th percentile of the clients"),
  mark("p90", "90th percentile", "90th percentile of the clients"),
];

const EPSILON = { name: "epsilon", at: "", title: "privacy spent (epsilon)", axis: "epsilon", format: "" };
const CLIP = { name: "clip", at: "", title: "length that updates were cut to (clip)", axis: "clip", format: "" };
const VOID = "The noise of some runs came from their seed: their guarantee is void.";
const PRIVATE = "Epsilon is of the model alone: this page holds clients' facts and is not for publication.";

const OF_CLIENTS =
  "Of a single run, the band holds the middle of its clients: a tenth of them has a lower local accuracy than its " +
  "lower edge, a tenth a higher one than its upper edge.";
const OF_SEEDS = "Of several seeds, the line is their mean, and the band reaches from the lowest to the highest.";

function showAccuracy() {
  const [one, several] = [ROWS.some((row) => row.tested === 1), ROWS.some((row) => row.tested > 1)];
  const spent = ROWS.some((row) => linesOf(row, EPSILON));
  const isVoid = ROWS.some((row) => row.events.some(({ kind }) => kind === "privacy-void"));
  const about = [one ? OF_CLIENTS : "", several ? OF_SEEDS : "", spent ? PRIVATE : "", isVoid ? VOID : ""];
  $("accuracy-how").textContent = about.join(" ");
  const ofPrivacy = [EPSILON, CLIP].filter((measure) => ROWS.some((row) => linesOf(row, measure)));
  curvesPanel("accuracy", [...ACCURACY, ...ofPrivacy]);
}
