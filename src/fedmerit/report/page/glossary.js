// Glossary: the criteria by their full names, and the terms of the page.

const TERMS = [
  ["weight", "how much a client's update counts in a round, or in its group: all weights there sum to 100 %"],
  ["equal share", "the weight of each client if all weights were the same: 1 / number of clients"],
  ["criterion", "a property of a client that is measured in each round; higher is better"],
  ["priority", "the order of the criteria, the most important first"],
  ["normalised", "a criterion scaled to 0 to 1, so that criteria can be combined"],
  ["score", "computed from a client's normalised criteria; a weight is a score divided by the sum of all scores"],
  ["gate", "the accuracy at the server below which a client's criteria count as 0"],
  ["accuracy", "the share of correct predictions on the test rows; numbers are correct within the tolerance"],
  ["FedAvg", "weights proportional to the number of samples"],
  ["seed", "the start of all random numbers; rows with the same seed share data, first model and selected clients"],
];

function showGlossary() {
  const about = (text, words) => clean(text.startsWith(`${words}: `) ? text.slice(words.length + 2) : text);
  const criteria = [...CRITERIA].map(([name, { words, about: text }]) => [
    words === name ? clean(name) : `${clean(name)}: ${clean(words)}`,
    about(text, words) || "a user-defined criterion",
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
