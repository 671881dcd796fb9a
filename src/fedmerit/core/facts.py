"""Facts: numbers that clients report about their rows and training, and numbers that the server measures.

`FACTS` is the only table of them: clients measure by it, the check of replies bounds claims by it, documents and lists
print it. `attribute:NAME`, `fact:NAME`, `validated:OBJECTIVE`, `contribution:METHOD`, `claimed:FACT` and `usual:FACT`
are families; `find_fact` builds their members.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.types import EMPTY, REMEMBERED, Samples
from fedmerit.errors import DataError, UnknownName

Source: TypeAlias = Literal["client", "server"]

ATTRIBUTE = "attribute:"
CLIENT_FACT = "fact:"
"""Prefix of a fact that only the client knows: its age, battery, job."""
VALIDATED = "validated:"
CONTRIBUTION = "contribution:"
IS_WORD = " is "
BOOLEAN = {"true": 1.0, "false": 0.0}
"""Words in clients' facts that count as numbers."""
WITHOUT = ":without"
"""Suffix of a server fact about the model without the client."""
CLAIMED, USUAL = "claimed:", "usual:"
SAMPLES, SECONDS, LOSS, CLOCK, EPOCHS = "samples", "seconds", "loss", "clock", "epochs"
LARGEST = sys.float_info.max
"""Upper bound of values computed from claims: an overflow must not end a round."""
CLIP, NORM, LAYER_NORM, EXCLUDED, UNITS_FACT = "clip", "norm", "layer_norm", "excluded", "units"
MOST_SAMPLES = 1e9
"""Largest number of rows that a client may claim, unless the federation states fewer."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One number per client and round: its meaning, its source, and its range.

    `measure` computes it from the client's rows; without it the client's training or the server provides the value.
    A value below `low` or above `high` is rejected: the client is dropped from the round. A federation may state
    tighter limits by name, for example `labels` <= the number of classes.

    >>> Fact("share", "some share", low=0, high=1).wrong(1e6)
    'fact share must be in 0..1 (got 1000000.0)'
    """

    name: str
    about: str
    measure: Callable[[Samples], float] | None = None
    low: float = 0.0
    high: float | None = None
    source: Source = "client"

    def wrong(self, value: Any, most: float | None = None) -> str | None:
        """Return the reason to reject this claim, or None; `most` is a limit that the federation states."""
        if not isinstance(value, int | float | np.integer | np.floating) or isinstance(value, bool):
            return f"fact {self.name} is missing or not a number (got {value!r:.80})"
        if not 0 <= value <= LARGEST:
            return f"fact {self.name} must be finite and >= 0 (got {value!r:.80})"
        high = min((limit for limit in (self.high, most) if limit is not None), default=None)
        if high is not None and not self.low <= value <= high:
            return f"fact {self.name} must be in {self.low:g}..{high:g} (got {value!r:.80})"
        return None if value >= self.low else f"fact {self.name} must be at least {self.low:g} (got {value!r:.80})"


def class_balance(samples: Samples) -> float:
    """Class balance: min / max of the class counts [PMCFL, CB]; 0 if a class of the task is missing."""
    counts = np.bincount(_classes(samples), minlength=samples.classes)
    return float(counts.min() / counts.max()) if counts.max() else 0.0


def attribute_share(samples: Samples, name: str) -> float:
    """Mean of a per-row attribute."""
    if name not in samples.attributes:
        names = ", ".join(sorted(samples.attributes)) or "none"
        raise DataError(f"the data has no attribute {name!r}; it has: {names}")
    return float(np.mean(samples.attributes[name])) if len(samples) else 0.0


def _labels(samples: Samples) -> float:
    return float(len(np.unique(_classes(samples))))


def _classes(samples: Samples) -> NDArray[np.int64]:
    """Classes of the rows; an error if the task does not predict classes."""
    if samples.y.ndim != 1 or samples.y.dtype.kind not in "iu":
        raise DataError(
            "the criteria LD, CB and MW count classes, this task predicts numbers; use DS, Attribute or validated:r2"
        )
    return samples.y


_ALL = (
    Fact(SAMPLES, "number of training rows", lambda rows: float(len(rows)), high=MOST_SAMPLES),
    Fact("labels", "number of distinct labels", _labels, high=MOST_SAMPLES),
    Fact("coverage", "distinct labels / classes of the task", lambda rows: _labels(rows) / rows.classes, high=1),
    Fact("balance", "rows of the rarest class / rows of the most frequent, over all classes", class_balance, high=1),
    Fact("sharp", "share of images not marked `Blurry`", lambda rows: 1 - attribute_share(rows, "Blurry"), high=1),
    Fact(SECONDS, "training time that the client reports", low=1e-12),
    Fact(LOSS, "mean loss of the received model on the client's training rows"),
    Fact(CLOCK, "duration of the client's work by the server's clock", source="server"),
    Fact(EPOCHS, "epochs that the server requested", source="server"),
    Fact(REMEMBERED, "rounds since the answer that counts, see recipe.memory; 0: of this round", source="server"),
    Fact(CLIP, "factor of the update's norm after clipping; 1: not clipped", high=1, source="server"),
    Fact(EXCLUDED, "1 for a client whose update must not be aggregated, else 0", high=1, source="server"),
    Fact(NORM, "Euclidean norm of the update as it was sent", source="server"),
    Fact(UNITS_FACT, "the client's weight as an integer in a masked sum", source="server"),
    Fact(LAYER_NORM, "mean norm of the layers' weights in the update", source="server"),
)
FACTS: Mapping[str, Fact] = {fact.name: fact for fact in _ALL}
OF_TRAINING = (SECONDS, LOSS)
"""Facts about a client's training and device, not about its rows."""


def find_fact(name: str) -> Fact:
    """Find a fact by name; a name in no table is a number >= 0 that clients report.

    >>> find_fact("balance").high, find_fact("attribute:Young").high, find_fact("clock").source
    (1, 1, 'server')
    """
    if name.startswith(ATTRIBUTE):
        attribute = name.removeprefix(ATTRIBUTE)
        return Fact(name, f"mean of the attribute {attribute} over the rows", _share_of(attribute), high=1)
    if name.startswith(CLIENT_FACT):
        text = name.removeprefix(CLIENT_FACT)
        return Fact(name, f"{text}, as the client reports", _own_value(text), high=1 if IS_WORD in text else None)
    if name.startswith(VALIDATED):
        return Fact(name, "the server's score of the client's model", high=1, source="server")
    if name.startswith(CONTRIBUTION):
        return Fact(name, "what the client's update adds to the round's model, by the server", source="server")
    if name.startswith(CLAIMED):
        return Fact(name, "reported value of a claim that was bounded, see the stage `claims`", source="server")
    if name.startswith(USUAL):
        return Fact(name, "the client's usual value of a claim, see the stage `claims`", source="server")
    return FACTS.get(name) or Fact(name, "a number that clients report")


def _own_value(text: str) -> Callable[[Samples], float]:
    """Value of a client's fact; for a word (`job is nurse`) 1 if it matches, otherwise 0."""
    name, is_word, word = text.partition(IS_WORD)

    def value(rows: Samples) -> float:
        if name not in rows.own:
            names = ", ".join(sorted(rows.own)) or "none; set them in [facts]"
            raise DataError(f"the clients have no fact {name!r}; they have: {names}")
        fact = rows.own[name]
        if is_word:
            return float(is_own_word(fact, word))
        if isinstance(fact, str) and fact.lower() in BOOLEAN:
            return BOOLEAN[fact.lower()]
        if isinstance(fact, str):
            raise DataError(f"the clients' fact {name!r} is a word (got {fact!r}); write {CLIENT_FACT}{name} is {fact}")
        return float(fact)

    return value


def is_own_word(value: float | str, word: str) -> bool:
    """Whether a client's fact equals a word; a number is compared as a number.

    >>> is_own_word("nurse", "nurse"), is_own_word(24.0, "24"), is_own_word(24.0, "nurse")
    (True, True, False)
    """
    if isinstance(value, str):
        return value == word
    try:
        return float(word) == value
    except ValueError:
        return False


def _share_of(attribute: str) -> Callable[[Samples], float]:
    return lambda rows: attribute_share(rows, attribute)


def measure(samples: Samples, names: Iterable[str], of_training: Mapping[str, float] = EMPTY) -> dict[str, float]:
    """Measure the requested facts on a client's rows; `of_training` holds the facts of its training.

    >>> import numpy as np
    >>> rows = Samples(np.zeros((4, 2)), np.array([0, 0, 0, 1]), classes=2)
    >>> measure(rows, ["samples", "balance"])
    {'samples': 4.0, 'balance': 0.3333333333333333}
    """
    return {name: of_training[name] if name in of_training else _measure(samples, name) for name in names}


def _measure(samples: Samples, name: str) -> float:
    measured = find_fact(name).measure
    if measured is not None:
        return measured(samples)
    if name in OF_TRAINING:
        return 0.0  # measured without training
    raise UnknownName("fact", name, [*(one.name for one in _ALL if one.source == "client"), f"{ATTRIBUTE}NAME"])
