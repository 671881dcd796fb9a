"""[train]: how clients train the model."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from fedmerit.config.sections import Count, NotNegative, Positive, Section, refuse_idle


class TrainConfig(Section):
    """[train]: how clients train the model."""

    lr: Positive = Field(0.1, description="learning rate of the clients")
    epochs: Count = Field(5, description="passes over the client's rows in each round")
    batch: Count | Literal["full"] = Field(32, description="rows per gradient step, or `full`: all rows of the client")
    optimizer: Literal["sgd", "adam", "adamw"] = Field(
        "sgd", description="the clients' optimizer: `sgd`, `adam` or `adamw`; its state is reset in each round"
    )
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(0.0, description="momentum of `sgd`, reset in each round")
    weight_decay: NotNegative = Field(
        0.0, description="L2 penalty on the parameters; with `adamw` decoupled weight decay"
    )
    prox: NotNegative = Field(
        0.0, description="FedProx: mu, FedDyn: alpha (0.01), the weight of the pull towards the received model"
    )
    schedule: Literal["constant", "cosine"] = Field(
        "constant", description="learning rate over the rounds: `constant`, or `cosine` decay over `run.rounds`"
    )
    algorithm: Literal["sgd", "scaffold", "feddyn"] = Field(
        "sgd", description="client algorithm: `sgd`, `scaffold` (control variates) or `feddyn`"
    )

    @model_validator(mode="before")
    @classmethod
    def _alpha_of_feddyn(cls, values: Any) -> Any:
        return {"prox": 0.01, **values} if isinstance(values, dict) and values.get("algorithm") == "feddyn" else values

    @model_validator(mode="after")
    def _nothing_idle(self) -> Self:
        if self.optimizer != "sgd":
            refuse_idle(self, ("momentum",), f"with optimizer = {self.optimizer!r}, which has its own; remove it")
        if self.algorithm == "feddyn" and not self.prox:
            raise ValueError(
                "algorithm = 'feddyn' needs prox, its alpha, greater than 0 (got 0.0); the default is 0.01"
            )
        if self.algorithm == "scaffold" and (self.optimizer != "sgd" or self.momentum or self.prox):
            raise ValueError(
                "algorithm = 'scaffold' computes the mean gradient from the end point of plain SGD; remove optimizer, "
                "momentum and prox"
            )
        return self
