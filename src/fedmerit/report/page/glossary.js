// Glossary: the criteria spelt out, and the words that the page uses.

const TERMS = [
  ["weight", "how much a client's update counts in a round, or in its group: all weights there sum to 100 %"],
  ["equal share", "the weight that every client would have if nothing were weighed: 1 / number of clients"],
  ["criterion", "something that is measured of a client: higher is better"],
  ["priority", "the order of the criteria, the most important first"],
  ["normalised", "a criterion brought to a scale from 0 to 1, so that criteria can be put together"],
  ["score", "one number made of a client's normalised criteria; weights are scores as shares of their sum"],
  ["gate", "an accuracy that a model must reach at the server before its criteria count"],
  ["accuracy", "the share of the test rows that are right; a number is, within the tolerance; labels are, all of them"],
  ["FedAvg", "weights in proportion to the numbers of samples"],
  ["seed", "the start of all random draws; rows with the same seed share data, first model and draws"],
];

function showGlossary() {
  const about = (text, words) => clean(text.startsWith(`${words}: `) ? text.slice(words.length + 2) : text);
  const criteria = [...CRITERIA].map(([name, { words, about: text }]) => [
    words === name ? clean(name) : `${clean(name)}: ${clean(words)}`,
    about(text, words) || "a criterion of the user's own",
  ]);
  const entry = ([term, text]) => [el("dt", shorten(term, 60)), el("dd", text)];
  $("glossary-list").replaceChildren(...[...criteria, ...TERMS].flatMap(entry));
}

// A criterion's name with its meaning on hover, and spelt out beside it.
function criterionCell(name) {
  const { words, about } = CRITERIA.get(name) ?? { words: name, about: "" };
  const short = el("abbr", { title: clean(about || words) }, shorten(name, 24));
  return words === name ? short : [short, el("small", shorten(words, 32))];
}
