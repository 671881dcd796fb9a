"""Suspicions about a table before round 1: questions that name a column or a client, what was done, and the key.

A reading that can only be wrong in one way is applied and stated: a code for missing values becomes missing, an ID or a
column that gives the label away is left out, spellings of a word are merged. Other suspicions are asked, and the values
stay. Decisions about inputs are made on training rows; rows that are not trained on change none of them.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmerit.config.task import TaskConfig
from fedmerit.tasks.cells import NO, SHARE, YES, as_numbers, is_missing, normal, to_number, word_of

KINDS = {
    "label": "label",
    "leak": "gives the label away",
    "id": "ID",
    "code": "code for missing",
    "numbers": "numbers as text",
    "names": "names of columns",
    "schema": "differs between files",
    "words": "spellings",
    "unit": "unit",
    "outlier": "outlier",
    "rows": "rows of a client",
    "copy": "copied rows",
    "form": "form of a file",
    "date": "dates",
    "constant": "constant",
}
"""Kinds of suspicions, the gravest first."""
CODES = (-1, -7, -8, -9, -77, -88, -99, -777, -888, -999, -9999, -99999, 9, 99, 777, 888, 999, 9999, 99999)
UNKNOWN = {"unknown", "unk", "not known", "missing", "not available", "n.a", "not done", "pending", "undefined"}
"""Numbers and words that stand for a missing value in many files."""
SYNONYMS = (NO, YES, ("f", "w", "female", "woman"), ("m", "male", "man"))
ID_NAMES = {"id", "ids", "rownames", "rowname", "row", "index", "nr", "no", "number", "key", "mrn", "case", "record"}
DATE = re.compile(r"(\d{4}[-./]\d{1,2}[-./]\d{1,2}|\d{1,2}[-./]\d{1,2}[-./]\d{2,4})([ T]\d.*)?")
MOST_WORDS = 50
"""A text column with more distinct values looks like an ID, and is dropped."""
MOST_CELLS = 5_000_000
"""Larger tables are not searched for copied rows."""
MOST_COMPARED = 200
"""With more clients, their units are not compared with one another."""
FEW_ROWS = 10
LEAK, SURE_LEAK = 0.9, 0.97
"""Share of the errors of always answering the commonest label that a column alone avoids: suspected, and left out."""


@dataclass(frozen=True, slots=True)
class Suspicion:
    """A question about a column or a client.

    kind     a name of `KINDS`
    text     the question, what was done, and the key that settles it
    column   the column, if it is about one
    client   the client, if it is about one
    reason   why the column is left out; empty if it is not
    replace  values of the column that are read as another; an empty text is a missing value
    """

    kind: str
    text: str
    column: str = ""
    client: str = ""
    reason: str = ""
    replace: Mapping[str, str] = field(default_factory=dict)


def ranked(found: Sequence[Suspicion]) -> tuple[Suspicion, ...]:
    """The gravest first; of one kind, those that lose values."""
    return tuple(sorted(found, key=lambda one: ([*KINDS].index(one.kind), "" not in one.replace.values())))


def setting(column: str, values: Mapping[str, str]) -> str:
    """The line of a configuration that replaces these values.

    >>> setting("sex", {"F": "female"})
    'task.replace = {sex = {F = "female"}}'
    """
    pairs = ", ".join(f"{_key(old)} = {json.dumps(new, ensure_ascii=False)}" for old, new in values.items())
    return f"task.replace = {{{_key(column)} = {{{pairs}}}}}"


def _key(text: str) -> str:
    return text if re.fullmatch(r"[A-Za-z0-9_-]+", text) else json.dumps(text, ensure_ascii=False)


def tidied(name: str, values: NDArray[Any], settled: bool) -> tuple[NDArray[Any] | None, list[Suspicion]]:
    """A column of words as numbers if nearly all of them are; None if they are dates."""
    present = Counter(word for word in values.tolist() if word is not None) if values.dtype == object else Counter()
    total = present.total()
    if not total:
        return values, []
    if sum(count for word, count in present.items() if DATE.fullmatch(word)) >= SHARE * total:
        return None, []
    read = as_numbers(values)
    strange = {word: count for word, count in present.items() if word in read.strange}
    share = 1 - sum(strange.values()) / total
    if share < SHARE:
        if share < 0.5 or len(present) < 5:
            return values, []
        example = max(strange, key=strange.__getitem__)
        text = (
            f"Is {name} a number? {share:.0%} of its values are, but {example!r} is not; kept as words; "
            f"{setting(name, {example: ''})} reads it as missing"
        )
        return values, [] if settled else [Suspicion("numbers", text, name)]
    parts = [
        (read.limits, "a limit of detection", "Read as the limit"),
        (read.written, "a number", "Read as a number"),
        (strange, "a missing value", "Read as missing"),
    ]
    found = []
    for words, what, done in parts:
        if words and not settled:
            word = max(words, key=present.__getitem__)
            number = sum(present[each] for each in words)
            value = "" if words is strange else f", {words[word]:g}"
            text = (
                f"Is {word!r} in {name} {what}? {_have(number, total, 'value', 'is')} such; {done.lower()}{value}; "
                f"{setting(name, {word: value.strip(', ')})} settles it"
            )
            found.append(Suspicion("numbers", text, name, replace=dict.fromkeys(words, "") if words is strange else {}))
    return read.values, found


def same_words(counts: Mapping[str, int], synonyms: bool = True) -> dict[str, str]:
    """Spellings of one word, each with the commonest of them: `Female ` and `F` next to `female`."""
    groups: dict[Any, list[str]] = {}
    for word in sorted(counts, key=lambda word: (-counts[word], word)):
        key: Any = normal(word)
        if synonyms and any(key in words for words in SYNONYMS):
            key = next(words for words in SYNONYMS if key in words)
        elif synonyms and word.isalpha() and len(word) <= 3:
            longer = [normal(other) for other in counts if other != word and normal(other).startswith(key)]
            key = longer[0] if len(longer) == 1 else key
        groups.setdefault(key, []).append(word)
    return {word: first for first, *others in groups.values() for word in others}


def is_typo(word: str, other: str) -> bool:
    """Whether two words differ by one letter, or by two that changed places.

    >>> is_typo("yse", "yes"), is_typo("no", "yes")
    (True, False)
    """
    word, other = sorted((word, other), key=len)
    differ = next((place for place, pair in enumerate(zip(word, other, strict=False)) if pair[0] != pair[1]), len(word))
    rest, others = word[differ:], other[differ:]
    swapped = len(rest) == len(others) > 1 and rest[:2] == others[1::-1] and rest[2:] == others[2:]
    return swapped or (rest[1:] if len(rest) == len(others) else rest) == others[1:]


def spellings(name: str, values: NDArray[Any], config: TaskConfig, role: str = "") -> list[Suspicion]:
    """Words of a column that look like another of its words or mean missing; of a label also codes and rare values."""
    counts = Counter(word for word in values.tolist() if word is not None and word == word)
    known, total, kind = config.replace.get(name, {}), counts.total(), "label" if role == "label" else "words"
    few = [word for word, count in counts.items() if count <= max(3, 0.01 * total)]
    merged = same_words(counts, synonyms=role != "client") if values.dtype == object else {}
    common = {merged.get(word, word) for word in counts if word not in few}
    least = min((counts[word] for word in common), default=0) if role == "label" and len(common) == 2 else 0
    odd = [word for word in few if 10 * counts[word] <= least]  # next to two classes
    found = list[Suspicion]()

    def ask(word: str, question: str, done: str, new: str, *ways: tuple[str, str], of: str = kind) -> None:
        keys = ", ".join(f"{setting(name, {word: value})} {does}" for value, does in (*ways, (word, "keeps it")))
        text = f"{question}? {_have(counts[word] or counts[float(word)], total)} it; {done}; {keys}"
        found.append(Suspicion(of, text, name, replace={word: new}))

    if values.dtype != object:
        codes = CODES if role == "label" and len(counts) > 2 else ()
        for code in [word_of(value) for value in few if value in odd or value in codes]:
            if code not in known:
                ask(code, f"Is {code} a value of {name}", "left out", "", ("", "confirms it"))
        return found
    for word, first in [pair for pair in merged.items() if pair[0] not in known]:
        ask(word, f"Is {name} = {word!r} the same as {first!r}", f"read as {first!r}", first, (first, "confirms it"))
    words = [word for word in counts if word not in merged] if role != "client" else []
    long, done = (3, "left out") if role == "label" else (4, "read as missing")
    alike = [word for word in words if word.isalpha() and len(word) >= long]
    for word in [word for word in words if word not in known]:
        near = [other for other in alike if counts[other] >= 10 * counts[word] and is_typo(word, other)]
        if normal(word) in UNKNOWN:
            of = kind if role == "label" else "code"
            ask(word, f"Does {word!r} in {name} mean missing", done, "", ("", "confirms it"), of=of)
        elif word in few and word in alike and len(near) == 1:
            ask(word, f"Is {name} = {word!r} a typo of {near[0]!r}", done, "", (near[0], "corrects it"))
        elif word in odd:
            ask(word, f"Is {word!r} a value of {name}", done, "", ("", "confirms it"))
    return found


def inspect(
    columns: Mapping[str, NDArray[Any]],
    config: TaskConfig,
    labels: NDArray[Any],
    owners: Mapping[str, NDArray[np.int64]],
) -> Iterator[Suspicion]:
    """Suspicions about the inputs, from some rows: their columns, labels, and the places of each client's rows."""
    for name, values in columns.items():
        chosen = name in config.features
        if reason := useless(values):
            kind = "id" if "ID" in reason else "constant"
            question = f"Is {name} an ID" if kind == "id" else f"Should {name} have other values"
            text = f"{question}? It is left out: {reason}; task.drop = [{json.dumps(name)}] confirms it"
            yield Suspicion(kind, text, name, reason=reason)
            continue
        if not chosen and (reason := _names_client(values, owners) or _is_id(name, values, owners)):
            text = f"Is {name} an ID? It is left out: {reason}; {either(name)}"
            yield Suspicion("id", text, name, reason=reason)
            continue
        share, reason = (0.0, "") if chosen else _gives_away(values, labels)
        if share >= LEAK:
            sure = share >= SURE_LEAK
            done = f"left out: {reason}; {either(name)}" if sure else f"kept: {reason}; {either(name, 'leaves it out')}"
            text = f"Is {name} known before the label is? It is {done}"
            yield Suspicion("leak", text, name, reason=reason if sure else "")
            if sure:
                continue
        if values.dtype == object:
            yield from spellings(name, values, config)
            counts = {who: Counter(value for value in values[rows] if value) for who, rows in owners.items()}
            yield from other_words(name, "words", counts, config.replace.get(name, {}))
        else:
            yield from odd_numbers(name, values, config, owners)


def other_words(
    name: str, kind: str, counts: Mapping[str, Mapping[str, int]], known: Mapping[str, str]
) -> Iterator[Suspicion]:
    """Clients that write a column in words that no other client uses, such as 1 and 2 where others have m and f."""
    used = {who: {word for word, count in words.items() if count} for who, words in counts.items()}
    times = Counter(word for words in used.values() for word in words)
    for who, words in used.items():
        lonely = len(words) > 1 and all(times[word] == 1 for word in words) and sum(counts[who].values()) >= FEW_ROWS
        if lonely and len(times) > len(words) and len(words) <= 10 and not words & known.keys():
            shown = ", ".join(map(repr, sorted(words)))
            text = f"Does {who} write {name} in other words? No other client has {shown}; kept"
            same = setting(name, {word: word for word in sorted(words)})
            yield Suspicion(kind, f"{text}; task.replace translates them, {same} confirms them", name, who)


def useless(values: NDArray[Any]) -> str:
    """Why nothing can be learned from a column; empty if something can."""
    gaps = is_missing(values)
    different = len(set(values[~gaps].tolist()))
    if different < 2 and (gaps.all() or not gaps.any()):
        return "it has the same value in every row" if different else "it has no values"
    many = different > MOST_WORDS or (len(values) >= 20 and different >= SHARE * len(values))
    return f"{different} distinct text values, looks like an ID" if values.dtype == object and many else ""


def either(name: str, drop: str = "confirms it") -> str:
    """The keys that settle whether a column is left out."""
    return f"task.drop = [{json.dumps(name)}] {drop}, listing it in task.features keeps it"


def _names_client(values: NDArray[Any], owners: Mapping[str, NDArray[np.int64]]) -> str:
    """Why a column says no more than which client a row is of; empty if it says more."""
    kinds = [{*values[rows].tolist()} for rows in owners.values() if len(rows)]
    alone = len(kinds) > 1 and all(len(each) == 1 for each in kinds) and len(set[Any]().union(*kinds)) == len(kinds)
    return "it has one value for each client" if alone else ""


def _is_id(name: str, values: NDArray[Any], owners: Mapping[str, NDArray[np.int64]]) -> str:
    """Integers that number the rows, of the table or of each client."""
    if values.dtype == object or len(values) < 20 or np.isnan(values).any() or (values % 1 != 0).any():
        return ""
    named = ID_NAMES & set(re.split(r"[\W_]+", name.casefold())) or name.startswith("column ")
    increasing = bool((np.diff(values) > 0).all())
    for parts, text in (
        ([values], "of the table"),
        ([values[rows] for rows in owners.values() if len(rows)], "of each client"),
    ):
        distinct = sum(len(np.unique(part)) for part in parts)
        dense = sum(np.ptp(part) + 1 for part in parts) < 1.5 * len(values)
        if distinct >= 0.95 * len(values) and (named or dense or (increasing and len(parts) == 1)):
            return f"its integers number the rows {text}"
    return ""


def _gives_away(values: NDArray[Any], labels: NDArray[Any]) -> tuple[float, str]:
    """How much of the label the column alone explains, and a text for it."""
    gaps = is_missing(values)
    if len(labels) < 30 or labels.ndim > 1:
        return 0.0, ""
    if labels.dtype.kind == "f":
        if values.dtype == object or gaps.any() or not values.std() or not labels.std():
            return 0.0, ""
        same = abs(float(np.corrcoef(values, labels)[0, 1]))
        return same * (same > 0.999), f"its correlation with the label is {same:.4f}"
    if values.dtype == object:
        groups = np.unique([str(value) for value in values], return_inverse=True)[1]
    else:
        edges = np.unique(np.nanquantile(values, np.linspace(0, 1, 21)[1:-1], method="lower"))
        few = len(np.unique(values[~gaps])) <= 20
        groups = np.unique(values, return_inverse=True)[1] if few else np.searchsorted(edges, values, side="right")
        groups = np.where(gaps, groups.max() + 1, groups)
    table = np.zeros((groups.max() + 1, int(labels.max()) + 1))
    np.add.at(table, (groups, labels), 1)
    wrong, commonest = len(labels) - table.max(axis=1).sum(), len(labels) - table.sum(axis=0).max()
    share = 1 - wrong / commonest if commonest >= 5 else 0.0
    return share, f"it predicts {1 - wrong / len(labels):.1%} of the labels without any other column"


def odd_numbers(
    name: str, values: NDArray[Any], config: TaskConfig, owners: Mapping[str, NDArray[np.int64]]
) -> Iterator[Suspicion]:
    """Numbers that mean missing or look like a mistake, and clients that use another unit."""
    known = {to_number(old) for old in config.replace.get(name, {})}
    distinct, counts = np.unique(values[~np.isnan(values)], return_counts=True)
    codes = [code for code in CODES if code in distinct and code not in known]
    rest = distinct[~np.isin(distinct, codes)]
    if len(distinct) < 3 or len(rest) < 2:
        return
    times = dict(zip(distinct.tolist(), counts.tolist(), strict=True))
    low, high = rest[0], rest[-1]
    missing = [code for code in codes if (code < 0 <= low) or (code > high and code - high > 2 * (high - low))]
    for code in missing:
        text = (
            f"Does {code} in {name} mean missing? {_have(times[code], counts.sum(), 'value', 'is')} {code}; read as "
            f"missing; {setting(name, {str(code): ''})} confirms it, {setting(name, {str(code): str(code)})} keeps it"
        )
        yield Suspicion("code", text, name, replace={str(code): ""})
    real = np.where(np.isin(values, missing), np.nan, values)
    rest = distinct[~np.isin(distinct, missing)]
    if len(rest) < 20:
        return
    total = int(counts.sum())
    positive = rest[rest > 0]
    apart = rest[0] == 0 and positive[0] >= max(10 * np.median(np.diff(positive)), np.median(real[real > 0]) / 4)
    if apart and times[0.0] > 1 and 0 not in known:
        text = (
            f"Does 0 in {name} mean missing? {_have(times[0.0], total, 'value', 'is')} 0, the next is {positive[0]:g}; "
            f"kept; {setting(name, {'0': ''})} reads it as missing, {setting(name, {'0': '0'})} confirms it"
        )
        yield Suspicion("code", text, name)
    few = max(3, 0.001 * len(values))
    far = [float(rest[-1])] if rest[-1] >= 5 * rest[-2] > 0 and rest[-1] - rest[-2] > 2 * (rest[-2] - rest[0]) else []
    far += [float(rest[0])] if rest[0] < 0 <= rest[1] else []
    for value in [value for value in far if times[value] <= few and value not in known]:
        word = word_of(value)
        near = rest[-2] if value > 0 else rest[1]
        text = (
            f"Is {word} in {name} a mistake? {_have(times[value], total, 'value', 'is')} {word}, the next is {near:g}; "
            f"kept; {setting(name, {word: ''})} reads it as missing, {setting(name, {word: word})} confirms it"
        )
        yield Suspicion("outlier", text, name)
    yield from _units(name, real, config, owners)


def _units(
    name: str, values: NDArray[np.float64], config: TaskConfig, owners: Mapping[str, NDArray[np.int64]]
) -> Iterator[Suspicion]:
    """A client whose values do not overlap with those of the remaining clients."""
    if name in config.features or len(owners) > MOST_COMPARED:
        return
    many = {who: rows for who, rows in owners.items() if np.count_nonzero(~np.isnan(values[rows])) >= FEW_ROWS}
    spans = {who: np.nanquantile(values[rows], (0.05, 0.5, 0.95)) for who, rows in many.items()}
    for who, (low, middle, high) in spans.items():
        others = np.array([span for other, span in spans.items() if other != who])
        if len(others) and min(low, others[:, 0].min()) > 0 and (low > others[:, 2].max() or high < others[:, 0].min()):
            ratio = middle / np.median(others[:, 1])
            if not 0.5 < ratio < 2:
                text = (
                    f"Is {name} of {who} in another unit? Its median is {ratio:.3g} times that of the other clients; "
                    f"kept, because each client is standardised separately; {either(name, 'leaves it out')}"
                )
                yield Suspicion("unit", text, name, who)


def _have(count: int, total: int, thing: str = "row", verb: str = "has") -> str:
    """`1 row of 20 has`, `3 rows of 20 have`."""
    plural = {"has": "have", "is": "are"}[verb] if count != 1 else verb
    return f"{count:,} {thing}{'s' * (count != 1)} of {total:,} {plural}"


def inspect_clients(
    labels: Mapping[str, Mapping[str, int]],
    columns: Mapping[str, NDArray[Any]],
    owners: Mapping[str, NDArray[np.int64]],
    column: str,
    known: Mapping[str, str],
) -> Iterator[Suspicion]:
    """Clients with few rows, with one label, or with repeated rows; `column` names them."""
    repeated = _repeated(columns)
    for who, rows in owners.items():
        counts = {word: count for word, count in labels.get(who, {}).items() if count}
        value = who if columns[column].dtype == object else who.removeprefix(f"{column} ")
        way_out = f"{setting(column, {value: ''})} leaves it out, {setting(column, {value: value})} keeps it"
        if value in known:
            continue
        if len(rows) < FEW_ROWS:
            text = f"Are there more rows of {who}? It has {len(rows)}, too few to train or test on; kept; {way_out}"
            yield Suspicion("rows", text, client=who)
        elif len(counts) == 1:
            text = f"Does {who} have rows of one label only? All {len(rows)} are {next(iter(counts))}; kept; {way_out}"
            yield Suspicion("rows", text, client=who)
        times = int(repeated[rows].sum()) if repeated is not None else 0
        if times >= max(5, 0.01 * len(rows)):
            text = (
                f"Did {who} write rows twice? {times:,} of {len(rows):,} rows repeat another in every column; kept, "
                f"so a test row may equal a training row; remove them from the file, or {way_out}"
            )
            yield Suspicion("copy", text, client=who)


def _repeated(columns: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_] | None:
    """Which rows repeat an earlier one; None if the columns are too coarse to tell, or the table too large."""
    size = len(next(iter(columns.values())))
    if size * len(columns) > MOST_CELLS:
        return None
    codes = []
    for values in columns.values():
        places: dict[Any, int] = {}
        codes.append([places.setdefault(None if value != value else value, len(places)) for value in values.tolist()])
    if max(max(column) for column in codes) < 0.5 * size:
        return None
    return ~np.isin(np.arange(size), np.unique(np.array(codes).T, axis=0, return_index=True)[1])
