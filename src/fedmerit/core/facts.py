"""Facts: the numbers that clients report about their rows and training, and those that the server knows itself.

`FACTS` is the one table of them: clients measure by it, the check at the door bounds claims by it, documents and lists
print it. `attribute:NAME`, `fact:NAME`, `validated:OBJECTIVE`, `contribution:METHOD` and `claimed:FACT` are families;
`find_fact` makes their members.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import scipy
from numpy.typing import NDArray

from fedmerit.core.types import EMPTY, Samples
from fedmerit.errors import DataError, UnknownName

Source: TypeAlias = Literal["client", "server"]

ATTRIBUTE = "attribute:"
CLIENT_FACT = "fact:"
"""Begins the name of a fact that only the client itself knows: its age, battery, job."""
VALIDATED = "validated:"
CONTRIBUTION = "contribution:"
IS_WORD = " is "
BOOLEAN = {"true": 1.0, "false": 0.0}
"""Words of clients' own facts that are numbers, too."""
WITHOUT = ":without"
"""Ends the name of a fact of the server's that speaks of the model without the client."""
CLAIMED = "claimed:"
SAMPLES, SECONDS, LOSS, CLOCK, EPOCHS = "samples", "seconds", "loss", "clock", "epochs"
SITE, ANCHOR = "site", "anchor"
LARGEST = sys.float_info.max
"""What a value made of claims counts as where it is too large for a number: no claim may end a round."""
CLIP, NORM, STALENESS, EXCLUDED = "clip", "norm", "staleness", "excluded"
MOST_SAMPLES = 1e9
"""The most rows that a client may claim where the federation does not state fewer."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One number per client and round: what it is, where it comes from, and the range that it must lie in.

    `measure` computes it from the client's rows; without it the client's training or the server provides the value.
    A value below `low` or above `high` is not believed: the client is left out of the round. A federation may state
    tighter limits by name, for example `labels` <= the number of classes.

    >>> Fact("share", "some share", low=0, high=1).wrong(1e6)
    'fact share lies in 0..1: 1000000.0'
    """

    name: str
    about: str
    measure: Callable[[Samples], float] | None = None
    low: float = 0.0
    high: float | None = None
    source: Source = "client"

    def wrong(self, value: Any, most: float | None = None) -> str | None:
        """Why this claim is not believed, or None; `most` is a limit that the federation states."""
        if not isinstance(value, int | float | np.integer | np.floating) or isinstance(value, bool):
            return f"fact {self.name} is missing or not a number: {value!r:.80}"
        if not 0 <= value <= LARGEST:
            return f"fact {self.name} must be finite and >= 0: {value!r:.80}"
        high = min((limit for limit in (self.high, most) if limit is not None), default=None)
        if high is not None and not self.low <= value <= high:
            return f"fact {self.name} lies in {self.low:g}..{high:g}: {value!r:.80}"
        return None if value >= self.low else f"fact {self.name} is at least {self.low:g}: {value!r:.80}"


def class_balance(samples: Samples) -> float:
    """min / max of the class counts [PMCFL, CB]; 0 where a class of the task is missing."""
    counts = np.bincount(_classes(samples), minlength=samples.classes)
    return float(counts.min() / counts.max()) if counts.max() else 0.0


def attribute_share(samples: Samples, name: str) -> float:
    """Mean of a per-row attribute."""
    if name not in samples.attributes:
        known = ", ".join(sorted(samples.attributes)) or "none"
        raise DataError(f"the data has no attribute {name!r}; it has: {known}")
    return float(np.mean(samples.attributes[name])) if len(samples) else 0.0


def laplacian_sharpness(images: NDArray[Any]) -> float:
    """Mean over images of the variance of the Laplacian; a blurred image scores lower.

    Images are (N, height, width, channels), integers 0..255 or floats 0..1.
    """
    if images.ndim != 4:
        raise DataError(f"sharpness is measured on images (N, height, width, channels); got shape {images.shape}")
    if not len(images):
        return 0.0
    grey = images.mean(axis=3, dtype=np.float64)
    if np.issubdtype(images.dtype, np.integer):
        grey /= 255.0
    edges = scipy.ndimage.laplace(grey, mode="nearest", axes=(1, 2))
    return float(edges.var(axis=(1, 2)).mean())


def _labels(samples: Samples) -> float:
    return float(len(np.unique(_classes(samples))))


def _classes(samples: Samples) -> NDArray[np.int64]:
    """The rows' classes; where something else is predicted, criteria of classes mean nothing."""
    if samples.y.ndim != 1 or samples.y.dtype.kind not in "iu":
        raise DataError(
            "the criteria LD, CB and MW count classes, and this task predicts "
            f"{'several labels at once' if samples.y.ndim > 1 else 'numbers'}; weigh by DS, Attribute or validated:r2"
        )
    return samples.y


_ALL = (
    Fact(SAMPLES, "number of training rows", lambda rows: float(len(rows)), high=MOST_SAMPLES),
    Fact("labels", "number of distinct labels", _labels, high=MOST_SAMPLES),
    Fact("coverage", "distinct labels / classes of the task", lambda rows: _labels(rows) / rows.classes, high=1),
    Fact("balance", "rows of the rarest class / rows of the commonest, over all classes", class_balance, high=1),
    Fact("sharp", "share of images not marked `Blurry`", lambda rows: 1 - attribute_share(rows, "Blurry"), high=1),
    Fact(
        "sharpness",
        "variance of the grey image's Laplacian, mean over images",
        lambda rows: laplacian_sharpness(rows.x),
    ),
    Fact(SECONDS, "how long the client says it trained", low=1e-12),
    Fact(LOSS, "mean loss of the received model on the client's training rows"),
    Fact(CLOCK, "how long the client took by the server's clock", source="server"),
    Fact(EPOCHS, "how many epochs the server asked the client to train", source="server"),
    Fact(STALENESS, "rounds since the one that the update answers; 0: this one, see run.wait.late", source="server"),
    Fact(SITE, "the number of the site that the client belongs to, as the federation knows it", source="server"),
    Fact(ANCHOR, "training rows that count for an anchored cap: at most twice the median", source="server"),
    Fact(CLIP, "what is left of the update's norm after clipping; 1: all of it", high=1, source="server"),
    Fact(EXCLUDED, "1 for a client whose update must not be aggregated, else 0", high=1, source="server"),
    Fact(NORM, "Euclidean norm of the update as it was sent", source="server"),
)
FACTS: Mapping[str, Fact] = {fact.name: fact for fact in _ALL}
OF_TRAINING = (SECONDS, LOSS)
"""Facts that come out of a client's training and device, not out of its rows."""


def find_fact(name: str) -> Fact:
    """The fact of that name; a name in no table is a number >= 0 that a client reports by itself.

    >>> find_fact("balance").high, find_fact("attribute:Young").high, find_fact("clock").source
    (1, 1, 'server')
    """
    if name.startswith(ATTRIBUTE):
        attribute = name.removeprefix(ATTRIBUTE)
        return Fact(name, f"mean of the attribute {attribute} over the rows", _share_of(attribute), high=1)
    if name.startswith(CLIENT_FACT):
        text = name.removeprefix(CLIENT_FACT)
        return Fact(name, f"{text}, as the client says", _own_value(text), high=1 if IS_WORD in text else None)
    if name.startswith(VALIDATED):
        return Fact(name, "what the server measured of the client's model", high=1, source="server")
    if name.startswith(CONTRIBUTION):
        return Fact(name, "what the server found the client's update to add to the round's model", source="server")
    if name.startswith(CLAIMED):
        return Fact(name, "what clients claimed where other values counted, see the stage `claims`", source="server")
    return FACTS.get(name) or Fact(name, "a number that clients report by themselves")


def _own_value(text: str) -> Callable[[Samples], float]:
    """A number of the client's own; of a word (`job is nurse`), 1 where it is that one, else 0."""
    name, asked, word = text.partition(IS_WORD)

    def value(rows: Samples) -> float:
        if name not in rows.own:
            known = ", ".join(sorted(rows.own)) or "none; give them in [facts]"
            raise DataError(f"the clients have no fact {name!r} of their own; they have: {known}")
        found = rows.own[name]
        if asked:
            return float(is_own_word(found, word))
        if isinstance(found, str) and found.lower() in BOOLEAN:
            return BOOLEAN[found.lower()]
        if isinstance(found, str):
            raise DataError(
                f"the fact {name!r} of the clients' own is a word, {found!r}; write {CLIENT_FACT}{name} is {found}"
            )
        return float(found)

    return value


def is_own_word(found: float | str, word: str) -> bool:
    """Whether a client's own fact is that word; a number is compared as one.

    >>> is_own_word("nurse", "nurse"), is_own_word(24.0, "24"), is_own_word(24.0, "nurse")
    (True, True, False)
    """
    if isinstance(found, str):
        return found == word
    try:
        return float(word) == found
    except ValueError:
        return False


def _share_of(attribute: str) -> Callable[[Samples], float]:
    return lambda rows: attribute_share(rows, attribute)


def measure(samples: Samples, names: Iterable[str], of_training: Mapping[str, float] = EMPTY) -> dict[str, float]:
    """The facts asked for, measured on a client's rows; `of_training` are those that its training brought.

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
        return 0.0  # measured without training: nothing was done
    raise UnknownName("fact", name, [*(one.name for one in _ALL if one.source == "client"), f"{ATTRIBUTE}NAME"])
