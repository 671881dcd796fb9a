"""Mixtures: several models as sums of a few vectors, so that bytes do not grow with the number of candidates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from fedmerit.core.server.optimizers import mix
from fedmerit.core.types import Model


@dataclass(frozen=True, slots=True, eq=False)
class Mixtures(Sequence[Model]):
    """The models start + sum_i coefficients[k][i] * basis[i], built when they are looked at.

    >>> import numpy as np
    >>> one = np.ones(2, np.float32)
    >>> models = Mixtures(one, (one,), ((0.0,), (1.0,), (2.0,)))
    >>> [model.tolist() for model in models], models.nbytes
    ([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]], 16)
    """

    start: Model
    basis: tuple[Model, ...]
    coefficients: tuple[tuple[float, ...], ...]

    def __len__(self) -> int:
        return len(self.coefficients)

    @overload
    def __getitem__(self, place: int) -> Model: ...
    @overload
    def __getitem__(self, place: slice) -> Mixtures: ...
    def __getitem__(self, place: int | slice) -> Model | Mixtures:
        if isinstance(place, slice):
            return Mixtures(self.start, self.basis, self.coefficients[place])
        return mix(self.start, self.basis, self.coefficients[place])

    def __iter__(self) -> Iterator[Model]:
        return (mix(self.start, self.basis, row) for row in self.coefficients)

    @property
    def nbytes(self) -> int:
        """Bytes on the wire: the vectors, each once."""
        return self.start.nbytes + sum(vector.nbytes for vector in self.basis)


def model_bytes(models: Sequence[Model]) -> int:
    """Bytes on the wire of models that are sent together.

    >>> import numpy as np
    >>> model_bytes([np.zeros(2, np.float32)] * 3)
    24
    """
    return models.nbytes if isinstance(models, Mixtures) else sum(model.nbytes for model in models)
