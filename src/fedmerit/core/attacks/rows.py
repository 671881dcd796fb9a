"""Attacks by rows: flipped labels and triggers, and how their success is measured."""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.types import Samples
from fedmerit.errors import DataError

Labels = NDArray[np.int64]
TARGET_LABEL = 0
"""The target label of backdoors, and the class that an eraser removes."""
BRIGHTEST = 255
LOUD_FEATURE = 3.0
"""Value of the trigger in rows of features: three deviations if features are standardised."""


@runtime_checkable
class TargetedAttack(Protocol):
    """Attack that wants a wrong label for some rows, or for rows with a trigger."""

    @property
    def strength(self) -> float:
        """Share of the attackers' rows that are poisoned."""

    def wanted(self, y: Labels, classes: int) -> Labels:
        """Return the label that the attacker wants for each row."""


@dataclass(frozen=True, slots=True)
class LabelFlip:
    """Label flip y -> classes - 1 - y in a share of the attacker's rows [Fang et al. 2020; Tolpegin et al. 2020]."""

    strength: float = 1.0

    def wanted(self, y: Labels, classes: int) -> Labels:
        """Mirror the labels."""
        return classes - 1 - y


@dataclass(frozen=True, slots=True)
class Backdoor:
    """Backdoor: a share of the attacker's rows get a trigger and the label 0 [BadNets, Gu et al. 2017].

    The update is not scaled: a stealthy backdoor, which leaves accuracy on clean rows unchanged.
    """

    strength: float = 0.5

    def wanted(self, y: Labels, classes: int) -> Labels:
        """Want one label for all rows."""
        return np.full_like(y, TARGET_LABEL)


def poisoned_rows(
    attack: TargetedAttack, x: NDArray[Any], y: Labels, classes: int, random: np.random.Generator
) -> tuple[NDArray[Any], Labels]:
    """Poison rows and labels; `strength` is the share of the rows, drawn at random."""
    chosen = random.random(len(y)) < attack.strength
    labels = np.where(chosen, attack.wanted(y, classes), y)
    if isinstance(attack, LabelFlip):
        return x, labels
    return np.where(chosen.reshape(-1, *[1] * (x.ndim - 1)), triggered(x), x), labels


def triggered(x: NDArray[Any]) -> NDArray[Any]:
    """Add the trigger: a bright square in the lower right corner of an image, or large values in the last features.

    The square's side is an eighth of the image's, at least 2 pixels; of features, one in sixteen, at least one.
    """
    marked = x.copy()
    if x.ndim == 4:
        side = max(2, x.shape[1] // 8)
        marked[:, -side:, -side:, :] = BRIGHTEST if np.issubdtype(x.dtype, np.integer) else 1.0
    elif x.ndim == 2:
        marked[:, -max(1, x.shape[1] // 16) :] = LOUD_FEATURE
    else:
        raise DataError(f"a backdoor needs images (N, height, width, channels) or features (N, F) (got {x.shape})")
    return marked


def make_probe(attack: TargetedAttack, rows: Samples) -> Samples:
    """Select the clean rows whose label the attacker wants to change, with this label, and add the trigger if any."""
    wanted = attack.wanted(rows.y, rows.classes)
    x, wanted = rows.x[wanted != rows.y], wanted[wanted != rows.y]
    return Samples(x if isinstance(attack, LabelFlip) else triggered(x), wanted, rows.classes)
