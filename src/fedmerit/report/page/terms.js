// Terms: the addends or factors that a client's score is made of; says the same as the scores of core/weights.

const productOf = (values) => values.reduce((product, value) => product * value, 1);
const sumOf = (values) => values.reduce((sum, value) => sum + value, 0);

// The places of a row's values, ascending by the key; equal ones stay in priority order.
const placesBy = (row, key) => row.map((_, i) => i).sort((a, b) => key(row[a]) - key(row[b]));
const fromBest = (row) => placesBy(row, (value) => -value);

// A term has the numbers that are shown of it, and the value that they give.
const factorsTerm = (...numbers) => ({ numbers, value: productOf(numbers) });

const prioritizedTerms = (row) => row.map((_, i) => factorsTerm(...row.slice(0, i + 1)));
const weightedTerms = (weights, values) => values.map((value, i) => factorsTerm(weights[i], value));
const inOrderOf = (places, values) => places.map((i) => values[i]);

// phi_i c_i for each criterion, and -I_ij / 2 |c_i - c_j| for each pair
function choquetTerms({ shapley, interaction }, row) {
  const pairs = interaction.map(([i, j, value]) => factorsTerm(-value / 2, Math.abs(row[i] - row[j])));
  return [...weightedTerms(shapley, row), ...pairs];
}

// n - rank, by the first criterion, ties by the next; equal rows share the mean of their ranks
function lexicographicTerms(_, row, table) {
  const firstUnlike = (other) => row.findIndex((value, i) => other[i] !== value);
  const [better, equal] = table.reduce(
    ([above, same], other) => {
      const i = firstUnlike(other);
      return i < 0 ? [above, same + 1] : [above + Number(other[i] > row[i]), same];
    },
    [0, 0],
  );
  const rank = better + (equal - 1) / 2;
  return { terms: [{ text: `${table.length} - ${numberText(rank, 6)}`, value: table.length - rank }] };
}

// Name of the score -> (score, row, table) -> its terms; they are summed where nothing else is said.
const SCORES = new Map([
  ["Prioritized", (_, row) => ({ terms: prioritizedTerms(row) })],
  ["Lexicographic", lexicographicTerms],
  [
    "WeightedMean",
    ({ weights }, row) => ({ terms: weightedTerms(weights.length ? weights : row.map(() => 1 / row.length), row) }),
  ],
  ["Product", (_, row) => ({ terms: row.map((value) => factorsTerm(value)), join: "product" })],
  ["OWA", ({ weights }, row) => ({ terms: weightedTerms(weights, inOrderOf(fromBest(row), row)) })],
  ["Choquet", (score, row) => ({ terms: choquetTerms(score, row) })],
]);

const JOINS = {
  sum: { join: sumOf, write: (texts) => texts.join(" + ") },
  product: { join: productOf, write: (texts) => texts.join(" * ") },
};

// What a rank counts among `clients`; 1 is the worst.
const RANKINGS = new Map([
  ["borda", (rank) => rank],
  ["squared", (rank) => rank ** 2],
  ["exponential", (rank, clients) => 2 ** (rank - clients)],
  ["top", (rank, clients, top) => (rank > clients - Math.ceil(top * clients - 1e-9) ? rank : 0)],
]);

// { terms, join, joined, rank, score } of one client of a table with a row per client; null for a score
// that is not one of ours.
function termsOf(score, table, place) {
  return score?.is === "Ranked" ? rankedTerms(score, table, place) : rowTerms(score, table[place], table);
}

function rowTerms(score, row, table) {
  if (!SCORES.has(score?.is)) return null;
  const found = { join: "sum", rank: null, ...SCORES.get(score.is)(score, row, table) };
  const joined = JOINS[found.join].join(found.terms.map(({ value }) => value));
  return { ...found, joined, score: joined };
}

// Those of the score below it, and the client's rank by that score.
function rankedTerms({ score, ...ranking }, table, place) {
  const terms = termsOf(score, table, place);
  const values = scoresOf(score, table);
  const rank = { place: rankIn(values, values[place]), of: table.length, how: ranking.how };
  return terms && { ...terms, rank, score: worthIn(values, values[place], ranking) };
}

function scoresOf(score, table) {
  if (score?.is !== "Ranked") return table.map((row) => rowTerms(score, row, table)?.score);
  const values = scoresOf(score.score, table);
  return values.map((value) => worthIn(values, value, score));
}

// 1 is the lowest; equal values share the mean.
function rankIn(values, mine) {
  const count = (test) => values.filter(test).length;
  return count((value) => value < mine) + (count((value) => value === mine) + 1) / 2;
}

// A score of 0 keeps 0.
const worthIn = (values, mine, { how, top }) =>
  mine > 0 ? RANKINGS.get(how)(rankIn(values, mine), values.length, top) : 0;

// As `fedmerit explain` writes it; the score is that of the ledger, which has more digits than the page's values give.
function termsText({ terms, join, joined, rank }, score) {
  const texts = terms.map(({ text, numbers }) => text ?? numbers.map(fourText).join(" * "));
  const whole = JOINS[join].write(texts);
  if (!rank) return whole.includes(" ") ? `${whole} = ${numberText(score)}` : numberText(score);
  const place = `rank ${numberText(rank.place, 6)} of ${rank.of} from below`;
  return `${whole} = ${numberText(joined)}, ${place}, which counts ${numberText(score)} (${rank.how})`;
}
