// Reasons: why a client has its weight, what decided and what would change it; says the same as core/reasons.py.

const ALIKE = 1e-9; // weights nearer than this are the same
const KEPT_DIGITS = 6e-4; // weights are kept with four digits: what differs by more was changed after the score
const ORDERED = new Set(["Prioritized", "PrioritizedAnd", "PrioritizedMean"]);
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
const plainNumber = (value) =>
  Number.isInteger(value) ? String(value) : value >= 1e5 ? value.toFixed(0) : String(Number(value.toPrecision(5)));

function standingOf(values, mine) {
  if (values.every((value) => value === mine)) return "same";
  const among = values.filter((value) => value === mine).length > 1 ? "among the " : "the ";
  if (mine === Math.max(...values)) return `${among}highest`;
  return mine === Math.min(...values) ? `${among}lowest` : null;
}

// { weight, kept, equal, clients, parts, decided, changes, zero, ordered }; null where the score is not one of ours, or
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
  const weight = weightsBy(rule, raw)[me];
  if (Math.abs(weight - mine.earned) > KEPT_DIGITS * weight + ALIKE) return null; // the page has too few digits
  const kept = run.rounds.uncapped[place] === null ? weight : mine.weight;
  const equal = 1 / peers.length;
  const parts = rule.priority.map((name, i) => partOf(run, rule, raw, me, i, name, mine));
  const pull = ({ alike }) => Math.sign(weight - equal) * (weight - alike);
  const zero = scores.some(Boolean) ? "" : zeroText(run);
  const decided = zero ? null : decider(parts, weight, pull);
  const found = { weight, kept, equal, clients: peers.length, parts, pull, decided, zero };
  const changes = peers.length > 1 ? changesOf(rule, raw, me, decided, samples, parts, weight) : [];
  return { ...found, changes, ordered: isOrdered(rule) };
}

const isOrdered = ({ score, priority }) => ORDERED.has(score.is) && priority.length > 1;

function partOf(run, rule, raw, me, i, name, mine) {
  const values = raw.map((row) => row[i]);
  const alike = weightsBy(rule, withColumn(raw, i, values[me]))[me];
  const rank = 1 + values.filter((value) => value > values[me]).length;
  const [standing, gate] = [standingOf(values, values[me]), gateOf(run, name, mine)];
  return { name, value: values[me], alike, rank, standing, gate };
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
  if (rule === "keep") return "the model was kept as it was";
  return rule === "uniform" ? "all weigh the same" : "weights follow the numbers of samples";
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

// A word that a client's own fact is or is not, as a statement: "job is nurse", "job were not nurse".
const isWord = (name) => name.startsWith("fact:") && name.includes(" is ");

function worded(name, value, verb) {
  const [of, ...word] = name.slice("fact:".length).split(" is ");
  return clean(`${of} ${verb} ${value ? "" : "not "}${word.join(" is ")}`);
}

function valueChanges(rule, raw, me, { name, value }) {
  const column = rule.priority.indexOf(name);
  const others = raw.flatMap((row, k) => (k === me ? [] : [row[column]])).sort((a, b) => a - b);
  const middle = others[Math.floor((others.length - 1) / 2)];
  if (middle === value) return [];
  const changed = weightsBy(rule, withCell(raw, me, column, middle))[me];
  if (isWord(name)) return [[`if its ${worded(name, middle, "were")}`, changed]];
  const more = `${plainNumber(Math.abs(middle - value))} ${middle > value ? "more" : "fewer"} samples`;
  const other = `with its ${spelt(name)} at ${plainNumber(middle)}, the median of the others`;
  const words = name === "DS" ? `with ${more}, as the median of the others` : other;
  return [[words, changed]];
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
  if (isWord(part.name)) return `its ${worded(part.name, part.value, "is")}${first.replace(/,$/, "")}`;
  if (part.gate) {
    const { measured, accuracy, least } = part.gate;
    return (
      `its ${words}${first} counts 0 instead of ${plainNumber(measured)}, since its accuracy at the server, ` +
      `${plainNumber(accuracy)}, is below the gate of ${plainNumber(least)}`
    );
  }
  if (part.standing === "same") return `${words}${first} is the same for all (${value})`;
  const where = part.standing ?? `number ${part.rank}`;
  return `its ${words}, ${value}${first || ","} is ${where} of ${reason.clients}`;
}

// A value at the end that its pull is not from, as the lowest of all that raised the weight: it would puzzle a reader.
function isOdd(reason, part) {
  if (part.gate || part === reason.decided) return false;
  return (part.standing ?? "").endsWith(reason.weight > part.alike ? "lowest" : "highest");
}

// What follows the client's name: "got 4.00% of round 3, ...".
function reasonSentence(reason, of) {
  const got = `got ${percentText(reason.kept)} of ${of}`;
  if (reason.clients === 1) return `${got}: it was the only client.`;
  const above = reason.kept - reason.equal;
  const near = reason.kept === reason.weight ? ALIKE : KEPT_DIGITS * reason.equal;
  const than = Math.abs(above) < near ? "the same as" : above > 0 ? "more than" : "less than";
  const compared = `${got}, ${than} an equal share (${percentText(reason.equal)})`;
  if (reason.zero) return `${compared}: every score was 0, so ${reason.zero}.`;
  const by = (sign) => reason.parts.filter((part) => sign * reason.pull(part) > ALIKE && !isOdd(reason, part));
  const [supports, opposes] = [1, -1].map((sign) => by(sign).sort((a, b) => sign * (reason.pull(b) - reason.pull(a))));
  const rest = reason.parts.filter((part) => !supports.includes(part) && !opposes.includes(part));
  const clauses = (parts, join) => parts.map((part) => clauseOf(reason, part)).join(join);
  const [because, although, others] = [clauses(supports, ", and "), clauses(opposes, ", and "), clauses(rest, "; ")];
  if (!supports.length) return `${compared}: ${[although, others].filter(Boolean).join("; ")}.`;
  const told = `because ${because}${although ? `, although ${although}` : ""}`;
  return `${compared}, ${[told, others].filter(Boolean).join("; ")}.`;
}

const FROM_OTHERS = "with its part of what the cap cut from others";

// What decided, and what would change it.
function reasonLines(reason) {
  const capital = (text) => text.slice(0, 1).toUpperCase() + text.slice(1);
  const lines = [];
  const capped = Math.abs(reason.kept - reason.weight) > KEPT_DIGITS * reason.weight + ALIKE;
  const before = capped ? " before the cap" : "";
  if (reason.decided) {
    const alike = `${percentText(reason.decided.alike)}${before}`;
    lines.push(`${capital(spelt(reason.decided.name))} decided: if all had its value, it would be ${alike}.`);
  }
  if (capped) {
    const [score, kept] = [percentText(reason.weight), percentText(reason.kept)];
    const made = reason.kept < reason.weight ? `was cut by the cap to ${kept}` : `grew to ${kept} ${FROM_OTHERS}`;
    lines.push(`Its score earned ${score}, which ${made}.`);
  }
  const changes = reason.changes.map(([words, weight]) => `${percentText(weight)} ${words}`);
  if (changes.length) lines.push(`It would get ${changes.join("; ")}${before}.`);
  return lines;
}
