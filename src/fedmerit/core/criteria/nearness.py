"""Model nearness (MW): by the norm of the whole update, or by the mean norm of the layers as PMCFL's authors ran it."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Annotated, ClassVar

import numpy as np

from fedmerit.core.facts import LAYER_NORM
from fedmerit.core.parts import ACCOUNTED, Doc, Words, part
from fedmerit.core.stages.stages import Measured, Phase
from fedmerit.core.state import History, View
from fedmerit.core.types import Cohort, Family, Vector


@dataclass(frozen=True, slots=True)
class LayerNorms:
    """Measure the mean, over the layers of the model, of the norm of the layer's weights in the update.

    A layer's weights are a tensor of two or more dimensions. Biases are left out, as in the authors' code. A model
    without such a tensor, or whose layers are unknown, is one layer.
    """

    phase: ClassVar[Phase] = "measure"
    name: ClassVar[str] = "layer-norms"

    def measure(self, cohort: Cohort, view: View) -> Measured:
        """Measure the fact `layer_norm`."""
        shapes = view.host.layers(len(view.model))
        ends = np.cumsum([prod(shape) for shape in shapes])
        layers = [slice(end - prod(shape), end) for shape, end in zip(shapes, ends, strict=True) if len(shape) > 1]
        updates = (cohort.updates.row(place).astype(np.float64) for place in range(len(cohort.ids)))
        norms = [[np.linalg.norm(update[layer]) for layer in layers or [slice(None)]] for update in updates]
        return Measured({LAYER_NORM: np.mean(norms, axis=1)})


@part("criterion", "MW")
class ModelNearness:
    """1 / sqrt(||update||_2 + 1), with the + 1 inside the root [PMCFL, MW].

    layers  use the mean norm of the layers, as the authors' code does, in place of the norm of the whole update

    >>> from fedmerit.core.updates import Updates
    >>> cohort = Cohort(1, (0, 1), Updates(np.array([[0, 0], [0, 3]], dtype=np.float32)), {})
    >>> MW(cohort, History()).tolist(), MW, ModelNearness(layers=True)
    ([1.0, 0.5], MW, MW(layers=True))
    """

    layers: Annotated[bool, Doc("use the mean norm of the layers' weights, as PMCFL's authors did")] = False

    name: ClassVar[str] = "MW"
    family: ClassVar[Family] = Family.MODEL
    required_facts: ClassVar[tuple[str, ...]] = ()
    degree: ClassVar[bool] = True
    about: ClassVar[str] = (
        "model nearness: 1 / sqrt(norm of the update + 1), near to the received model is better; computed by the server"
    )
    gives: ClassVar[Words] = ACCOUNTED

    @property
    def stages(self) -> tuple[LayerNorms, ...]:
        """The stage that measures the layers' norms."""
        return (LayerNorms(),) if self.layers else ()

    def __call__(self, cohort: Cohort, history: History) -> Vector:
        """Shorter updates, larger values."""
        norms = cohort.facts[LAYER_NORM] if self.layers else cohort.updates.norms
        return np.asarray(1.0 / np.sqrt(norms + 1.0))

    def __repr__(self) -> str:
        return "MW(layers=True)" if self.layers else "MW"


MW = ModelNearness()
