// Accuracy, or another measure: mean over all test rows, and of the clients on their own test rows.

const mark = (name, short, title) => ({ name, at: "", short, title, axis: title, format: MEASURE.format });

const ACCURACY = [
  { ...mark("value", MEASURE.label, "of all test rows"), axis: MEASURE.label },
  { ...mark("p50", "median client", "of the median client"), axis: `median client's ${MEASURE.label}` },
  mark("p10", "10th percentile", "10th percentile of the clients"),
  mark("p90", "90th percentile", "90th percentile of the clients"),
];

const EPSILON = { name: "epsilon", at: "", title: "privacy spent (epsilon)", axis: "epsilon", format: "" };
const CLIP = { name: "clip", at: "", title: "clipping norm of updates (clip)", axis: "clip", format: "" };
const VOID = "Some runs drew the noise from their seed: they have no privacy guarantee.";
const PRIVATE = "Epsilon covers the model only. This page shows facts of clients: do not publish it.";

const OF_CLIENTS = `With one seed, the band is the 10th to the 90th percentile of the clients' ${MEASURE.label}.`;
const ALSO = { name: "accuracy", at: "", title: "accuracy", axis: "accuracy", format: "%" };
const OF_SEEDS = "With several seeds, the line is their mean and the band their range.";

const capital = (text) => text[0].toUpperCase() + text.slice(1);

// Over how many clients: a measure such as AUC is not defined where the test rows have one class.
function measuredText() {
  if (MEASURE.name === "accuracy") return "";
  const least = Math.min(...ROWS.flatMap(({ measured }) => measured));
  const clients = Math.max(...ROWS.map((row) => row.clients));
  const direction = MEASURE.lower ? " Lower is better." : "";
  if (!Number.isFinite(least)) return direction.trim();
  const where = least < clients ? `${least} of ${clients} clients, where it is defined` : `all ${clients} clients`;
  return `${capital(MEASURE.label)} is averaged over the test rows of ${where}.${direction}`;
}

function showAccuracy() {
  const [one, several] = [ROWS.some((row) => row.tested === 1), ROWS.some((row) => row.tested > 1)];
  const spent = ROWS.some((row) => linesOf(row, EPSILON));
  const isVoid = ROWS.some((row) => row.events.some(({ kind }) => kind === "privacy-void"));
  $("accuracy-title").textContent = `${capital(MEASURE.label)} over rounds`;
  document.querySelector('nav a[href="#accuracy"]').textContent = capital(MEASURE.label);
  const ofPrivacy = [spent ? PRIVATE : "", isVoid ? VOID : ""];
  const about = [measuredText(), one ? OF_CLIENTS : "", several ? OF_SEEDS : "", ...ofPrivacy];
  $("accuracy-how").textContent = about.join(" ");
  const more = [ALSO, EPSILON, CLIP].filter((measure) => ROWS.some((row) => linesOf(row, measure)));
  curvesPanel("accuracy", [...ACCURACY, ...more]);
}
