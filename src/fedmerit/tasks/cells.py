"""Cells of a table: which are missing, words that are numbers, and replacements."""

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

NUMBER = re.compile(r"([<>≤≥]=?)?\s*([-+]?(?:\d[\d.,]*|[.,]\d+)(?:[eE][-+]?\d+)?)\s*(%|[A-Za-zµ°²]{1,8}(?:/[\w²]+)?)?")
"""A limit of detection, digits, a unit: `<0.5`, `1,234.5`, `70 kg`."""
SHARE = 0.9
"""Of a column's values that must be numbers, or dates, for the column to be read as such."""
NO, YES = ("0", "n", "no", "false", "neg", "negative"), ("1", "y", "yes", "true", "pos", "positive")


@dataclass(frozen=True, slots=True)
class ReadNumbers:
    """Words as numbers: `limits` and `written` are the words that a rule read, `strange` those that it could not.

    A limit such as `<0.5` is the number 0.5. `3,5` is 3.5, `1,234.5` is 1234.5; with points elsewhere in the column
    `1,234` is 1234. One unit may follow. In a column of 0 and 1, yes and no are 1 and 0.
    """

    values: NDArray[np.float64]
    limits: Mapping[str, float]
    written: Mapping[str, float]
    strange: frozenset[str]


def is_missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Which cells of a column are missing."""
    return np.array([value is None for value in values]) if values.dtype == object else np.isnan(values)


def normal(text: str) -> str:
    """A word without what spellings differ in: case, blanks, and a full stop at the end.

    >>> normal("Creatinine ") == normal("creatinine")
    True
    """
    return re.sub(r"[\s_-]+", " ", text).strip(" .").casefold()


def word_of(number: float) -> str:
    """A number as a word: as in the file, and to the bit."""
    short = f"{number:g}"
    return short if float(short) == number else repr(float(number))


def to_number(text: str, points: bool = False) -> float | None:
    """A word as a number, or None; `points`: a comma separates thousands. A code such as 007 is a word.

    >>> to_number("<0,5"), to_number("1,234.5"), to_number("high"), to_number("007")
    (0.5, 1234.5, None, None)
    """
    match = NUMBER.fullmatch(text.strip())
    if match is None or re.match(r"[-+]?0\d", match[2]):
        return None
    digits = match[2]
    if "," in digits and digits.rfind(",") > digits.rfind(".") and not (points and re.search(r",\d{3}$", digits)):
        digits = digits.replace(".", "").replace(",", ".")
    try:
        return float(digits.replace(",", ""))
    except ValueError:
        return None


def as_numbers(words: NDArray[Any]) -> ReadNumbers:
    """Read a column of words as numbers; other words are missing values."""
    counts = Counter(word for word in words.tolist() if word is not None)
    matches = {word: NUMBER.fullmatch(word) for word in counts}
    points = any(match and not match[3] and re.fullmatch(r"-?\d+\.\d+", match[2]) for match in matches.values())
    units = Counter({match[3]: 0 for match in matches.values() if match})
    for word, match in matches.items():
        units[match[3] if match else None] += counts[word] * bool(match and match[3])
    unit = units.most_common(1)[0][0] if units else None
    read = {word: to_number(word, points) for word, match in matches.items() if match and match[3] in (None, unit)}
    numbers = {word: number for word, number in read.items() if number is not None and math.isfinite(number)}
    if set(numbers.values()) <= {0.0, 1.0} and 2 * sum(counts[word] for word in numbers) >= counts.total():
        truths = {word: float(word.casefold() in YES) for word in counts if word.casefold() in (*NO, *YES)}
        numbers = truths | numbers
    limits = {word: number for word, number in numbers.items() if word[0] in "<>≤≥"}
    written = {word: number for word, number in numbers.items() if word not in limits and not _is_plain(word)}
    values = np.array([numbers.get(word, math.nan) for word in words.tolist()], dtype=np.float64)
    return ReadNumbers(values, limits, written, frozenset(counts) - frozenset(numbers))


def _is_plain(word: str) -> bool:
    return re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", word) is not None


def as_text(values: NDArray[Any]) -> NDArray[Any]:
    """Numbers as words, from which they can be read again to the bit; words unchanged."""
    words = np.empty(len(values), dtype=object)
    words[:] = [
        value if isinstance(value, str | None) else word_of(value) if value == value else None
        for value in values.tolist()
    ]
    return words


def replaced(values: NDArray[Any], changes: Mapping[str, str]) -> NDArray[Any]:
    """A column after replacements; an empty text is a missing value.

    >>> replaced(np.array([1.0, -999.0]), {"-999": ""}).tolist()
    [1.0, nan]
    """
    if not changes:
        return values
    numbers = {to_number(old): new for old, new in changes.items()}
    if values.dtype == object or any(new and to_number(new) is None for new in changes.values()):
        words = as_text(values)
        words[:] = [None if word is None else changes.get(word, word) or None for word in words.tolist()]
        return words
    changed = [numbers.get(value, value) for value in values.tolist()]
    return np.array([math.nan if value == "" else float(value) for value in changed], dtype=np.float64)
