// Data: the runs as the page embeds them, unpacked when they are looked at; Maps, never objects, for names and ids.

const DATA = JSON.parse($("data").textContent);
const RUNS = DATA.runs.map(prepare);

function prepare(run, index) {
  const events = new Map(); // round -> [{ kind, text, client }]
  for (const { kind, texts } of run.events) {
    for (const { text, at } of texts) {
      for (const [round, client] of at) {
        if (!events.has(round)) events.set(round, []);
        events.get(round).push({ kind, text, client });
      }
    }
  }
  const byRound = new Map(run.rounds.map((packed) => [packed.round, packed]));
  return { ...run, index, names: distinct(run.names), said: events, byRound, unpacked: new Map() };
}

// Names as people can tell them apart: one that is empty or not the only one of its kind gets the client's number.
function distinct(names) {
  const counts = new Map();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return names.map((name, id) => (counts.get(name) > 1 || !name.trim() ? `${name} #${id}`.trim() : name));
}

// A column as the data keeps it: numbers, one number for all, or the name of a fact.
function unpack(column, packed) {
  if (typeof column === "string") return unpack(packed.facts.find(([name]) => name === column)[1], packed);
  return Array.isArray(column) ? column : packed.ids.map(() => column);
}

// The clients of a round, heaviest first: { id, weight, score, facts, raw, norm }; empty where nobody was weighed.
function rowsOf(run, round) {
  if (!run.unpacked.has(round)) run.unpacked.set(round, unpackRows(run.byRound.get(round)));
  return run.unpacked.get(round);
}

function unpackRows(packed) {
  if (!packed) return [];
  const column = (values) => unpack(values, packed);
  const [weight, score] = [column(packed.weight), column(packed.score)];
  const raw = packed.raw.map(column);
  const norm = packed.norm.map((values, i) =>
    values?.times ? raw[i].map((value) => value * values.times) : column(values),
  );
  const facts = packed.facts.map(([name, values]) => [name, column(values)]);
  const rows = packed.ids.map((id, i) => ({
    id,
    weight: weight[i],
    score: score[i],
    facts: facts.map(([name, values]) => [name, values[i]]),
    raw: raw.map((values) => values[i]),
    norm: norm.map((values) => values[i]),
  }));
  return rows.sort((a, b) => b.weight - a.weight || a.id - b.id);
}

const saidIn = (run, round) => run.said.get(round) ?? [];
const leftOut = (run, round) => saidIn(run, round).filter((event) => event.client !== null);
const rank = (rows, value, mine) => 1 + rows.filter((row) => value(row) > mine).length;

// Names that are only a number need a word before them.
const nameOf = (run, id) => (/^\d+$/.test(run.names[id]) ? `client ${run.names[id]}` : run.names[id]);

// What happened to a client in a round, as one sentence.
function fateText(run, round, id, most) {
  const name = shorten(nameOf(run, id), most);
  const row = rowsOf(run, round).find((each) => each.id === id);
  if (row) return `${name}, round ${round}: weight ${weightText(row.weight)}`;
  const why = leftOut(run, round).find((event) => event.client === id);
  return `${name}, round ${round}: ${why ? `left out: ${shorten(why.text, 90)}` : "not drawn"}`;
}
