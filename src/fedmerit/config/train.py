"""[train]: what a client does with the model it received."""

from __future__ import annotations

from typing import Annotated, Literal, Self, TypeAlias, get_args

from pydantic import Field, model_validator

from fedmerit.config.sections import Count, NotNegative, Positive, Section, refuse_idle

Algorithm: TypeAlias = Literal["sgd", "scaffold", "feddyn"]
ALGORITHMS: tuple[Algorithm, ...] = get_args(Algorithm)


class TrainConfig(Section):
    """[train]: what a client does with the model it received."""

    lr: Positive = Field(0.1, description="learning rate of local training")
    epochs: Count = Field(5, description="passes over the client's rows")
    batch: Count | Literal["full"] = Field("full", description="rows per step, or `full`")
    optimizer: Literal["sgd", "adam", "adamw"] = Field(
        "sgd", description="`sgd`, `adam`, `adamw`: begun anew by each client in each round"
    )
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(0.0, description="momentum of local SGD, reset each round")
    weight_decay: NotNegative = Field(
        0.0, description="L2 penalty on the parameters; with adamw, decay beside the gradient"
    )
    clip: Positive | None = Field(None, description="the longest gradient of a batch; default: as long as it is")
    prox: NotNegative = Field(0.0, description="FedProx mu: pull towards the received model")
    schedule: Literal["constant", "cosine"] = Field(
        "constant", description="the learning rate over the rounds: `constant`, or half a `cosine` over `run.rounds`"
    )
    algorithm: Algorithm = Field("sgd", description="what corrects a client's gradients: nothing, or control variates")
    alpha: Positive = Field(0.01, description="FedDyn's alpha: pull towards the received model")

    @model_validator(mode="after")
    def _nothing_idle(self) -> Self:
        if self.optimizer != "sgd":
            refuse_idle(self, ("momentum",), f"with optimizer = {self.optimizer!r}, which has its own; leave it out")
        if self.algorithm != "feddyn":
            refuse_idle(self, ("alpha",), f"with algorithm = {self.algorithm!r}; it is feddyn's")
        if self.algorithm == "feddyn":
            refuse_idle(self, ("prox",), "beside algorithm = 'feddyn', whose alpha is that pull; leave it out")
        if self.algorithm == "scaffold" and (self.optimizer != "sgd" or self.momentum or self.prox):
            raise ValueError(
                "algorithm = 'scaffold' knows a client's mean gradient by where plain SGD ended: leave out optimizer, "
                "momentum and prox"
            )
        return self


def train_keys(algorithm: str) -> tuple[str, ...]:
    """The keys of [train] that go with this algorithm."""
    return tuple(key for key in TrainConfig.model_fields if key != "alpha" or algorithm == "feddyn")
