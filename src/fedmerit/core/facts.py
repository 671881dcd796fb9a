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

| loss           | mean loss of the received model on the client's training rows              |

Some facts are the server's: `clock`, the seconds by its own clock; `epochs`, what it asked the client to do;
`validated:OBJECTIVE`, what it found of the client's model on rows of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from fedmerit.core.types import Samples
from fedmerit.errors import DataError, UnknownName

ATTRIBUTE = "attribute:"
SECONDS = "seconds"
LOSS = "loss"
CLOCK = "clock"
EPOCHS = "epochs"
VALIDATED = "validated:"


def is_servers(name: str) -> bool:
    """Whether it is a fact that no client is asked for."""
    return name in (CLOCK, EPOCHS) or name.startswith(VALIDATED)


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
    edges = scipy.ndimage.laplace(grey, mode="nearest", axes=(1, 2))
    return float(edges.var(axis=(1, 2)).mean())


NO_TRAINING: Mapping[str, float] = MappingProxyType({SECONDS: 0.0, LOSS: 0.0})

FACTS: Mapping[str, Callable[[Samples], float]] = {
    "samples": lambda samples: float(len(samples)),
    "labels": lambda samples: float(len(np.unique(samples.y))),
    "coverage": lambda samples: len(np.unique(samples.y)) / samples.classes,
    "balance": class_balance,
    "sharp": lambda samples: 1.0 - attribute_share(samples, "Blurry"),
    "sharpness": lambda samples: laplacian_sharpness(samples.x),
}


def measure(samples: Samples, needs: Iterable[str], of_training: Mapping[str, float] = NO_TRAINING) -> dict[str, float]:
    """The facts asked for, measured on a client's rows; `of_training` are those of its training on them."""
    return {name: of_training[name] if name in of_training else _measure(samples, name) for name in needs}


def _measure(samples: Samples, name: str) -> float:
    if name.startswith(ATTRIBUTE):
        return attribute_share(samples, name.removeprefix(ATTRIBUTE))
    if name not in FACTS:
        raise UnknownName("fact", name, [*FACTS, SECONDS, LOSS, f"{ATTRIBUTE}NAME"])
    return FACTS[name](samples)
