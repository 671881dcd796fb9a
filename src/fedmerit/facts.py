"""Facts: the numbers a client measures about its own rows.

| fact           | measure                                                                    |
| -------------- | -------------------------------------------------------------------------- |
| samples        | number of training rows                                                    |
| labels         | number of distinct labels                                                  |
| coverage       | distinct labels / classes of the task                                      |
| balance        | rows of the rarest class / rows of the commonest, over all classes         |
| sharp          | share of images not marked `Blurry`                                        |
| sharpness      | variance of the Laplacian of the grey image, mean over the images          |
| attribute:NAME | mean of the attribute NAME over the rows: a share, or a boolean as 0 or 1  |
| seconds        | how long the client says it trained                                        |

Two facts are the server's: `clock`, the seconds by its own clock, and `epochs`, what it asked the client to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from fedmerit.errors import DataError, UnknownName
from fedmerit.types import Samples

ATTRIBUTE = "attribute:"
SECONDS = "seconds"
CLOCK = "clock"
EPOCHS = "epochs"
SERVERS = frozenset({CLOCK, EPOCHS})
"""Facts that no client is asked for."""


def class_balance(samples: Samples) -> float:
    """min / max of the class counts (SPEC A1, CB); 0 where a class of the task is missing."""
    counts = np.bincount(samples.y, minlength=samples.classes)
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
    edges = ndimage.laplace(grey, mode="nearest", axes=(1, 2))
    return float(edges.var(axis=(1, 2)).mean())


FACTS: Mapping[str, Callable[[Samples], float]] = {
    "samples": lambda samples: float(len(samples)),
    "labels": lambda samples: float(len(np.unique(samples.y))),
    "coverage": lambda samples: len(np.unique(samples.y)) / samples.classes,
    "balance": class_balance,
    "sharp": lambda samples: 1.0 - attribute_share(samples, "Blurry"),
    "sharpness": lambda samples: laplacian_sharpness(samples.x),
}


def measure(samples: Samples, needs: Iterable[str], seconds: float = 0.0) -> dict[str, float]:
    """The facts asked for, measured on a client's rows; `seconds` is how long it trained on them."""
    return {name: seconds if name == SECONDS else _measure(samples, name) for name in needs}


def _measure(samples: Samples, name: str) -> float:
    if name.startswith(ATTRIBUTE):
        return attribute_share(samples, name.removeprefix(ATTRIBUTE))
    if name not in FACTS:
        raise UnknownName("fact", name, [*FACTS, SECONDS, f"{ATTRIBUTE}NAME"])
    return FACTS[name](samples)
