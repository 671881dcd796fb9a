// Reasons: why a client has its weight, which criterion mattered most and what would change the weight; the same
// sentences as core/reasons.py.

const ALIKE = 1e-9; // weights that differ by less are equal
const KEPT_DIGITS = 6e-4; // weights are kept with four digits: a larger difference comes from a cap
const FAR = 2; // a value is far from the best one where they differ by more than this factor
const ORDERED = new Set(["Prioritized", "Lexicographic"]);
const ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth".split(" ");
const CRITERIA = new Map();
function takeCriteria() {
  for (const [name, words, about] of DATA.criteria) CRITERIA.set(name, { words, about });
}
takeCriteria();
const spelt = (name) => clean(CRITERIA.get(name)?.words ?? name);

const sharesOf = (values) => {
  const total = sumOf(values);
  return values.map((value) => (total ? value / total : 0));
};

// Each column on one scale, as core/weights.py has it.
function normalisedTable(raw, how) {
  if (how === "none") return raw;
  const columns = raw[0].map((_, i) => scaledColumn(raw.map((row) => row[i]), how));
  return raw.map((row, place) => row.map((_, i) => columns[i][place]));
}

function scaledColumn(values, how) {
  const [low, top] = [Math.min(...values), Math.max(...values)];
  if (how === "minmax") return values.map((value) => (top > low ? (value - low) / (top - low) : 1));
  const scaled = values.map((value) => (top > 0 ? value / top : 1));
  return how === "max" ? scaled : sharesOf(scaled);
}

// A rule: { priority, score, normalise, fallback }.
function weightsBy(rule, raw) {
  const scores = scoresOf(rule.score, normalisedTable(raw, rule.normalise));
  return sharesOf(scores.some(Boolean) ? scores : rule.fallback);
}

const withColumn = (raw, column, value) => raw.map((row) => row.map((old, i) => (i === column ? value : old)));
const withCell = (raw, place, column, value) =>
  raw.map((row, k) => (k === place ? row.map((old, i) => (i === column ? value : old)) : row));

// As the command line writes them.
function percentText(weight) {
  if (weight >= 0.001 || weight === 0) return `${(weight * 100).toFixed(2)}%`;
  const value = weight * 100;
  if (value >= 1e-4) return `${Number(value.toPrecision(2))}%`;
  const [digits, power] = value.toExponential(1).split("e-");
  return `${Number(digits)}e-${power.padStart(2, "0")}%`;
}
const thousands = (digits) => digits.replace(/\B(?=(?:\d{3})+$)/g, ",");
function plainNumber(value) {
  const whole = Number.isInteger(value) || value >= 1e5;
  const [digits, ...rest] = (whole ? value.toFixed(0) : String(Number(value.toPrecision(5)))).split(".");
  return [thousands(digits), ...rest].join(".");
}

// Where a value ranks: compared with the worse ones where it raised the weight, with the best one where it lowered it.
function rankWord({ name, value, rank, tied, best, worst, alike }, { weight, clients }) {
  const [most, least] = name === "DS" ? ["largest", "smallest"] : ["highest", "lowest"];
  const extreme = value === best ? most : least;
  if (value === best || value === worst) return `${tied ? "among " : ""}the ${extreme} of ${clients}`;
  if (weight < alike - ALIKE) return `${best > FAR * value ? "far " : ""}below the ${most} (${plainNumber(best)})`;
  if (weight > alike + ALIKE && rank > (clients + 1) / 2) return `above the ${least} (${plainNumber(worst)})`;
  return `${tied ? "tied for " : ""}${ORDINALS[rank - 1] ?? `number ${rank}`} of ${clients}`;
}

// { weight, kept, equal, clients, parts, decided, changes, zero, ordered, place }; null for a user-defined score, or
// where the page's digits do not give the weight again.
function reasonOf(run, place, peers, mine) {
  const score = run.rounds.scores[run.rounds.scored[place]];
  if (!score || !peers.length) return null;
  const samples = peers.map(({ facts }) => facts.find(([name]) => name === "samples")?.[1] ?? 0);
  const fallback = run.when_zero === "samples" ? samples : peers.map(() => Number(run.when_zero === "uniform"));
  const [priority, normalise] = [run.rounds.priority[place], run.rounds.normalise[place] ?? "sum"];
  const rule = { priority, score, normalise, fallback };
  const [raw, me] = [peers.map((row) => row.raw), peers.indexOf(mine)];
  const scores = scoresOf(score, normalisedTable(raw, rule.normalise));
  if (scores.some((value) => !Number.isFinite(value))) return null;
  const weights = weightsBy(rule, raw);
  const weight = weights[me];
  if (Math.abs(weight - mine.earned) > KEPT_DIGITS * weight + ALIKE) return null; // the page has too few digits
  const kept = run.rounds.uncapped[place] === null ? weight : mine.weight;
  const equal = 1 / peers.length;
  const parts = rule.priority.map((name, i) => partOf(run, rule, raw, me, i, name, mine));
  const pull = ({ alike }) => Math.sign(weight - equal) * (weight - alike);
  const zero = scores.some(Boolean) ? "" : zeroText(run);
  const decided = zero ? null : decider(parts, weight, pull);
  const found = { weight, kept, equal, clients: peers.length, parts, pull, decided, zero };
  const changes = peers.length > 1 ? changesOf(rule, raw, me, decided, samples, parts, weight) : [];
  const rank = 1 + weights.filter((other) => other > weight + ALIKE).length;
  return { ...found, changes, ordered: isOrdered(rule), place: score.is === "Lexicographic" ? rank : null };
}

const isOrdered = ({ score, priority }) => ORDERED.has(score.is) && priority.length > 1;

function partOf(run, rule, raw, me, i, name, mine) {
  const values = raw.map((row) => row[i]);
  const alike = weightsBy(rule, withColumn(raw, i, values[me]))[me];
  const rank = 1 + values.filter((value) => value > values[me]).length;
  const tied = values.filter((value) => value === values[me]).length > 1;
  const [best, worst, gate] = [Math.max(...values), Math.min(...values), gateOf(run, name, mine)];
  return { name, value: values[me], alike, rank, tied, best, worst, gate };
}

// What the server measured of a client that its gate shut out.
function gateOf(run, name, mine) {
  const least = run.gates.find(([gated]) => gated === name)?.[1];
  const fact = (wanted) => mine.facts.find(([each]) => each === wanted)?.[1];
  const [measured, accuracy] = [fact(name), fact("validated:accuracy")];
  return least !== undefined && accuracy < least ? { measured, accuracy, least } : null;
}

function decider(parts, weight, pull) {
  const most = (value) => parts.reduce((best, part) => (value(part) > value(best) ? part : best));
  const supporting = most(pull);
  if (pull(supporting) > ALIKE) return supporting;
  const moving = most(({ alike }) => Math.abs(weight - alike));
  return Math.abs(weight - moving.alike) > ALIKE ? moving : null;
}

function zeroText({ when_zero: rule }) {
  if (rule === "keep") return "the model did not change";
  return rule === "uniform" ? "all clients get the same weight" : "weights are proportional to dataset size";
}

function changesOf(rule, raw, me, decided, samples, parts, weight) {
  const changes = [];
  const fedavg = rule.priority.length === 1 && rule.priority[0] === "DS";
  if (!fedavg && samples.some(Boolean)) changes.push(["with FedAvg", sharesOf(samples)[me]]);
  if (decided && !decided.gate) changes.push(...valueChanges(rule, raw, me, decided));
  if (isOrdered(rule)) changes.push(orderChange(rule, raw, me, decided));
  const gated = parts.filter(({ gate }) => gate);
  if (gated.length) {
    const column = ({ name }) => rule.priority.indexOf(name);
    const opened = gated.reduce((table, part) => withCell(table, me, column(part), part.gate.measured), raw);
    changes.push(["without the gate", weightsBy(rule, opened)[me]]);
  }
  return changes.filter(([, changed]) => Math.abs(changed - weight) > ALIKE);
}

// A criterion that compares a client's fact with a word, as a statement: "job is nurse", "job were not nurse".
const isWord = (name) => name.startsWith("fact:") && name.includes(" is ");

function asStatement(name, value, verb) {
  const [of, ...word] = name.slice("fact:".length).split(" is ");
  return clean(`${of} ${verb} ${value ? "" : "not "}${word.join(" is ")}`);
}

function valueChanges(rule, raw, me, { name, value }) {
  const column = rule.priority.indexOf(name);
  const others = raw.flatMap((row, k) => (k === me ? [] : [row[column]])).sort((a, b) => a - b);
  const middle = others[Math.floor((others.length - 1) / 2)];
  if (middle === value) return [];
  const changed = weightsBy(rule, withCell(raw, me, column, middle))[me];
  if (isWord(name)) return [[`if its ${asStatement(name, middle, "were")}`, changed]];
  const median = plainNumber(middle);
  const has = name === "DS" ? `${median} rows` : `its ${spelt(name)} at ${median}`;
  return [[`with ${has}, the median of the other clients`, changed]];
}

function orderChange(rule, raw, me, decided) {
  const first = decided && decided.name !== rule.priority[0] ? decided.name : rule.priority[1];
  const order = [first, ...rule.priority.filter((name) => name !== first)];
  const table = raw.map((row) => order.map((name) => row[rule.priority.indexOf(name)]));
  return [`with ${spelt(first)} first`, weightsBy({ ...rule, priority: order }, table)[me]];
}

function clauseOf(reason, part) {
  const first = reason.ordered && part === reason.parts[0] ? ", which counts first," : "";
  const [words, value] = [spelt(part.name), plainNumber(part.value)];
  if (isWord(part.name)) return `its ${asStatement(part.name, part.value, "is")}${first.replace(/,$/, "")}`;
  if (part.gate) {
    const { measured, accuracy, least } = part.gate;
    return (
      `its ${words}${first} counts as 0 instead of ${plainNumber(measured)}, because its accuracy at the server, ` +
      `${plainNumber(accuracy)}, is below the gate of ${plainNumber(least)}`
    );
  }
  if (part.best === part.worst) return `${words}${first} is the same for all clients (${value})`;
  return `its ${words}, ${value}${first || ","} is ${rankWord(part, reason)}`;
}

// A value at the wrong end for its effect, as the lowest of all that raised the weight: it would puzzle a reader.
function isOdd(reason, part) {
  if (part.gate || part === reason.decided || part.best === part.worst) return false;
  return part.value === (reason.weight > part.alike ? part.worst : part.best);
}

// Of a lexicographic score, the order and the rank that it gives.
function orderText({ place, parts, clients }) {
  const words = parts.map(({ name }) => spelt(name));
  const order = words.length > 1 ? `first ${words.join(", then ")}` : `by ${words[0]}`;
  return place === null ? "" : `${order}: rank ${place} of ${clients}`;
}

// What follows the client's name: "got 4.00% of round 3, ...".
function reasonSentence(reason, of) {
  const got = `got ${percentText(reason.kept)} of ${of}`;
  if (reason.clients === 1) return `${got}: it was the only client.`;
  const above = reason.kept - reason.equal;
  const near = reason.kept === reason.weight ? ALIKE : KEPT_DIGITS * reason.equal;
  const than = Math.abs(above) < near ? "the same as" : above > 0 ? "more than" : "less than";
  const compared = `${got}, ${than} an equal share (${percentText(reason.equal)})`;
  if (reason.zero) return `${compared}: every score is 0, so ${reason.zero}.`;
  const by = (sign) => reason.parts.filter((part) => sign * reason.pull(part) > ALIKE && !isOdd(reason, part));
  const [supports, opposes] = [1, -1].map((sign) => by(sign).sort((a, b) => sign * (reason.pull(b) - reason.pull(a))));
  // Of a lexicographic score, a later criterion without an effect broke no tie.
  const counts = (part, i) => reason.place === null || !i || Math.abs(reason.weight - part.alike) > ALIKE;
  const rest = reason.parts.filter((part, i) => ![...supports, ...opposes].includes(part) && counts(part, i));
  const clauses = (parts, join) => parts.map((part) => clauseOf(reason, part)).join(join);
  const [because, but, others] = [clauses(supports, ", and "), clauses(opposes, ", and "), clauses(rest, "; ")];
  const causes = because ? `because ${because}${but ? `, but ${but}` : ""}` : but;
  return `${compared}${because ? "," : ":"} ${[causes, others, orderText(reason)].filter(Boolean).join("; ")}.`;
}

const FROM_OTHERS = "its share of the weight that the cap took from other clients raised it to";

// The criterion that mattered most, and what would change the weight.
function reasonLines(reason, name) {
  const capital = (text) => text.slice(0, 1).toUpperCase() + text.slice(1);
  const lines = [];
  const capped = Math.abs(reason.kept - reason.weight) > KEPT_DIGITS * reason.weight + ALIKE;
  const before = capped ? " before the cap" : "";
  if (reason.decided) {
    const { name: most, value, alike } = reason.decided;
    const rows = most === "DS" ? " rows" : "";
    const [subject, had] = isWord(most)
      ? [`whether ${asStatement(most, 1, "is")}`, `every client's ${asStatement(most, value, "were")}`]
      : [spelt(most), `every client had ${plainNumber(value)}${rows}`];
    lines.push(`${capital(subject)} mattered most: if ${had}, ${name} would get ${percentText(alike)}${before}.`);
  }
  if (capped) {
    const [score, kept] = [percentText(reason.weight), percentText(reason.kept)];
    const made = reason.kept < reason.weight ? "the cap reduced it to" : FROM_OTHERS;
    lines.push(`Its score gives ${score}; ${made} ${kept}.`);
  }
  const changes = reason.changes.map(([words, weight]) => `${percentText(weight)} ${words}`);
  if (changes.length) lines.push(`It would get ${changes.join("; ")}${before}.`);
  return lines;
}
