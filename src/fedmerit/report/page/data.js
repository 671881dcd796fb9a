// Data: rows and runs as the page embeds them, unpacked when looked at; Maps, never objects, for names and ids.

const LIVE = document.documentElement.dataset.live === "yes"; // from a server, while runs go on
const DATA = JSON.parse(await inflated("data"));
const MEASURE = DATA.measure; // what runs are judged by: { name, label, lower, format }
const ROWS = DATA.rows.map((row, index) => ({ ...row, index }));
const RUNS = DATA.runs.map((run, index) => ({ ...run, index, ...called(run, index) }));
const SHOWN = RUNS.filter(({ index }) => LIVE || $(`run-${index}`)); // the others did not fit into the file

// What a run is called, in a row of several by its seed.
function called(run, index) {
  const row = ROWS[run.row];
  const seed = row.seeds[row.runs.indexOf(index)];
  return { seed, label: row.runs.length > 1 ? `${row.label}, seed ${known(seed, String)}` : row.label };
}

// The detail of a run, read from the page the first time that it is wanted; a live one is fetched, again when it grew.
async function unfold(run) {
  if (run.names && !run.behind) return run;
  const detail = LIVE ? await fetchDetail(run) : JSON.parse(await inflated(`run-${run.index}`));
  run.behind = false;
  return unpackDetail(run, detail);
}

async function fetchDetail(run) {
  const response = await fetch(`run/${run.index}`);
  if (!response.ok) throw new Error(await response.text());
  return response.json();
}

function unpackDetail(run, detail) {
  Object.assign(run, { cells: undefined, homes: undefined, means: undefined });
  const places = new Map(detail.rounds.round.map((round, place) => [round, place]));
  return Object.assign(run, detail, { names: distinct(detail.names), places, said: said(detail), unpacked: new Map() });
}

// round -> [{ kind, text, client }]
function said({ events }) {
  const found = new Map();
  for (const { kind, texts } of events) {
    for (const { text, at } of texts) {
      for (const [round, client] of at) {
        if (!found.has(round)) found.set(round, []);
        found.get(round).push({ kind, text, client });
      }
    }
  }
  return found;
}

// Names as people can tell them apart: one that is empty or not the only one of its kind gets the client's number.
function distinct(names) {
  const counts = new Map();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return names.map((name, id) => (counts.get(name) > 1 || !name.trim() ? `${name} #${id}`.trim() : name));
}

const numbersOf = (run) => run.rounds.round;
const lastOf = (list) => list[list.length - 1];

// The clients of a round; a number stands for all clients up to it.
function idsOf(run, place) {
  const ids = run.rounds.ids[place];
  return Array.isArray(ids) ? ids : Array.from({ length: ids }, (_, id) => id);
}

// A column as the data keeps it: numbers, or one number for all.
const spreadOut = (column, count) => (Array.isArray(column) ? column : new Array(count).fill(column ?? null));

// A round's clients, heaviest first: { id, group, weight, earned, score, facts, raw, norm }, earned being the
// weight before the cap; none where nobody was weighed.
function rowsOf(run, round) {
  if (!run.unpacked.has(round)) run.unpacked.set(round, unpackRows(run, run.places.get(round)));
  return run.unpacked.get(round);
}

function unpackRows(run, place) {
  if (place === undefined) return [];
  const ids = idsOf(run, place);
  const column = (values) => spreadOut(values[place], ids.length);
  const facts = run.rounds.facts.filter(([, values]) => values[place] !== null);
  const columns = new Map(facts.map(([name, values]) => [name, column(values)]));
  const [group, score, weight] = [column(run.rounds.group), column(run.rounds.score), weightsOf(run, place)];
  const earned = run.rounds.uncapped[place] === null ? weight : column(run.rounds.uncapped);
  const criteria = run.rounds.priority[place].map((name) => criterion(run.rounds, name, place, ids.length, columns));
  const rows = ids.map((id, i) => ({
    id,
    group: group[i],
    weight: weight[i],
    earned: earned[i],
    score: score[i],
    facts: [...columns].map(([name, values]) => [name, values[i]]),
    raw: criteria.map(({ raw }) => raw[i]),
    norm: criteria.map(({ norm }) => norm[i]),
  }));
  return rows.sort((a, b) => b.weight - a.weight || a.id - b.id);
}

// A column that may be another one times a number.
function timesOf(column, other, count) {
  return column?.times ? other.map((value) => value * column.times) : spreadOut(column, count);
}

function weightsOf(run, place) {
  const count = idsOf(run, place).length;
  return timesOf(run.rounds.weight[place], spreadOut(run.rounds.score[place], count), count);
}

// Raw values may be those of a fact, which is then named.
function criterion({ raw, norm }, name, place, count, facts) {
  const of = (columns) => columns.find(([each]) => each === name)?.[1][place];
  const [value, scaled] = [of(raw), of(norm)];
  const values = typeof value === "string" ? facts.get(value) : spreadOut(value, count);
  return { raw: values, norm: timesOf(scaled, values, count) };
}

const saidIn = (run, round) => run.said.get(round) ?? [];
const leftOut = (run, round) => saidIn(run, round).filter(({ kind }) => kind === "left-out");
const rank = (rows, value, mine) => 1 + rows.filter((row) => value(row) > mine).length;

// Those whose weights sum to 1 together with a client's: its group, or all.
const peersOf = (rows, mine) => rows.filter(({ group }) => group === mine.group);

// "round 3", or where there were several groups "group 1 of 2 in round 3".
function shareOf(run, round, group) {
  const groups = run.rounds.groups[run.places.get(round)];
  return groups > 1 ? `group ${group + 1} of ${groups} in round ${round}` : `round ${round}`;
}

// Names that are only a number need a word before them.
const nameOf = (run, id) => (/^\d+$/.test(run.names[id]) ? `client ${run.names[id]}` : run.names[id]);

// What happened to a client in a round, as one sentence.
function fateText(run, round, id, most) {
  const name = shorten(nameOf(run, id), most);
  const row = rowsOf(run, round).find((each) => each.id === id);
  if (row) return `${name}: ${weightText(row.weight)} of ${shareOf(run, round, row.group)}`;
  const why = leftOut(run, round).find((event) => event.client === id);
  return `${name}, round ${round}: ${why ? `left out: ${shorten(why.text, 90)}` : "not selected"}`;
}
