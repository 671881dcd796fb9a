"""Hypotheses: several models at the server, of which each client takes the one that fits its rows best [IFCA]."""

from __future__ import annotations

from dataclasses import dataclass

from fedmerit.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Hypotheses:
    """The server keeps `count` models; in each round a client trains the one with the least loss on its training rows.

        j_i = argmin_j loss_i(w_j),    w_j = w_j + sum over the clients i with j_i = j of weight_i update_i

    Weights are earned among those who chose the same model and sum to 1 there [IFCA, Alg. 1, model averaging]; a model
    that nobody chose stays as it is. Each begins with a draw of its own. With one model this is the recipe without
    hypotheses.

    In the first `dealt` rounds a draw deals the models to the round's clients, as many to each. Models that know
    nothing yet tell clients little apart: in the paper, `dealt` = 0, all may choose the same one, which is then the
    best for all ever after.

    >>> Hypotheses(3).count
    3
    """

    count: int = 2
    dealt: int = 1

    def __post_init__(self) -> None:
        if isinstance(self.dealt, bool) or not isinstance(self.dealt, int) or self.dealt < 0:
            raise ConfigError(f"models are dealt in so many first rounds, a whole number from 0; got {self.dealt!r}")
        if isinstance(self.count, bool) or not isinstance(self.count, int) or self.count < 1:
            raise ConfigError(
                f"the number of models that clients choose from is a whole number from 1; got {self.count!r}"
            )
