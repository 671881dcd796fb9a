// Growing: more rounds of a run whose earlier ones are here already; a round that changed comes again.

const BY_ROUND = ["round", "priority", "groups", "normalise", "cut", "ids", "group", "weight", "score", "total"];
const IN_ORDER = [...BY_ROUND, "uncapped", "scored", "hash"];
const NAMED = ["facts", "raw", "norm"];

// The detail of a run from its server: of the rounds after one that is here, or all of it.
async function fetchDetail(run, after = 0, hash = "", sums = false) {
  const response = await fetch(`run/${run.index}?after=${after}&hash=${hash}&sums=${Number(sums)}`);
  if (!response.ok) throw new Error(await response.text());
  return response.json();
}

// The last round comes again each time: a strategy may have tested it since.
async function grow(run) {
  const rounds = run.rounds;
  const place = rounds.round.length - 2;
  const wanted = !run.suspects || performance.now() - (run.summed ?? -Infinity) > 15_000 || Boolean(run.ended);
  const more = await fetchDetail(run, rounds.round[place] ?? 0, rounds.hash?.[place] ?? "", wanted);
  const begin = performance.now();
  if (wanted) run.summed = begin;
  if (more.after) append(run, more);
  else unpackDetail(run, more);
  run.behind = false;
  return begin;
}

function append(run, more) {
  const keep = run.rounds.round.filter((round) => round <= more.after).length;
  const count = more.rounds.round.length;
  const drawn = isFull(run, keep);
  joinRounds(run.rounds, more.rounds, keep, count);
  joinSearch(run, more.search, keep, count);
  run.events = joinEvents(run.events, more.events, more.after);
  run.rewards = joinRewards(run.rewards, more.rewards, more.after);
  run.audits = joinAudits(run.audits, more.audits, more.after);
  for (const key of ["lineages", "accounts", "worth", "suspects"]) if (key in more) run[key] = more[key];
  for (const [round] of [...run.said]) if (round > more.after) run.said.delete(round);
  for (const [round, told] of said(more)) if (round > more.after) run.said.set(round, told);
  run.places = new Map(run.rounds.round.map((round, place) => [round, place]));
  for (const round of more.rounds.round) run.unpacked.delete(round);
  run.grouped = run.inOrder = run.means = undefined;
  if (drawn) growCells(run, keep, more.after);
}

const isFull = (run, keep) => Boolean(run.cells) && run.rounds.round.length - keep < 50;

function joinRounds(rounds, more, keep, count) {
  const places = more.scores.map((score) => placeOf(rounds.scores, score));
  const scored = more.scored.map((place) => (place === null ? null : places[place]));
  for (const key of IN_ORDER) rounds[key] = [...rounds[key].slice(0, keep), ...(key === "scored" ? scored : more[key])];
  for (const key of NAMED) {
    for (const [name] of more[key]) {
      if (!rounds[key].some(([each]) => each === name)) rounds[key].push([name, new Array(keep).fill(null)]);
    }
    for (const [name, column] of rounds[key]) {
      column.length = keep;
      column.push(...(more[key].find(([each]) => each === name)?.[1] ?? new Array(count).fill(null)));
    }
  }
}

function placeOf(scores, score) {
  const text = JSON.stringify(score);
  const place = scores.findIndex((each) => JSON.stringify(each) === text);
  return place < 0 ? scores.push(score) - 1 : place;
}

function joinSearch(run, more, keep, count) {
  if (!run.search && !more) return;
  const fill = (length, make) => Array.from({ length }, make);
  const none = (length) => ({ tried: fill(length, () => []), asked: fill(length, () => [0, 0, 0]) });
  const [old, add] = [run.search ?? none(keep), more ?? none(count)];
  const join = (key) => [...old[key].slice(0, keep), ...add[key]];
  run.search = { by: old.by ?? add.by, tried: join("tried"), asked: join("asked") };
}

function joinEvents(events, more, after) {
  const kinds = new Map();
  const add = (groups, keeps) => {
    for (const { kind, texts } of groups) {
      if (!kinds.has(kind)) kinds.set(kind, new Map());
      for (const { text, at } of texts) {
        const kept = at.filter(([round]) => keeps(round));
        if (kept.length) kinds.get(kind).set(text, [...(kinds.get(kind).get(text) ?? []), ...kept]);
      }
    }
  };
  add(events, (round) => round <= after);
  add(more, (round) => round > after);
  return [...kinds].filter(([, texts]) => texts.size).map(([kind, texts]) => eventGroup(kind, texts));
}

function eventGroup(kind, texts) {
  const all = [...texts.values()].flat();
  const clients = new Set(all.map(([, client]) => client).filter((client) => client !== null)).size;
  const rounds = all.map(([round]) => round);
  const [first, last] = [rounds.reduce((a, b) => Math.min(a, b)), rounds.reduce((a, b) => Math.max(a, b))];
  const listed = [...texts].map(([text, at]) => ({ text, at })).sort((a, b) => b.at.length - a.at.length);
  return { kind, count: all.length, first, last, clients, texts: listed };
}

function joinRewards(old, more, after) {
  if (!old || !more) return more ?? old;
  const keep = old.round.filter((round) => round <= after).length;
  return Object.fromEntries(Object.keys(old).map((key) => [key, [...old[key].slice(0, keep), ...more[key]]]));
}

function joinAudits(old, more, after) {
  if (old === null || more === null) return null;
  const found = new Map(old.map(([name, rounds, columns]) => [name, [rounds, columns]]));
  for (const [name, rounds, columns] of more) {
    const [before, values] = found.get(name) ?? [[], []];
    const keep = before.filter((round) => round <= after).length;
    found.set(name, [[...before.slice(0, keep), ...rounds], [...values.slice(0, keep), ...columns]]);
  }
  return [...found].map(([name, [rounds, columns]]) => [name, rounds, columns]);
}

// The grid with more columns; the strongest colour is found anew only when there are a tenth more of them.
function growCells(run, keep, after) {
  const { weight, marks, sized } = run.cells;
  const numbers = numbersOf(run);
  if (numbers.length > sized * 1.1) {
    run.cells = undefined;
    return;
  }
  for (const row of weight) row.length = keep;
  run.cells.marks = marks.filter(([, round]) => round <= after);
  for (let place = keep; place < numbers.length; place += 1) {
    for (const row of weight) row.push(null);
    fillColumn(run, run.cells, place);
  }
}
