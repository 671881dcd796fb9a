"""[recipe] of baselines from elsewhere: weights by losses, rewards by reputations, personal models, clients alone."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fedmerit.config.recipe_keys import OneModelConfig, RecipeConfig
from fedmerit.config.sections import NotNegative, Positive
from fedmerit.core import recipes
from fedmerit.core.recipe import Recipe


class QFFLConfig(OneModelConfig):
    """[recipe] of q-FFL's weights."""

    name: Literal["qffl"] = "qffl"
    about = "baseline q-FFL: weights by the loss to the power recipe.strength"
    strength: NotNegative = Field(1.0, description="q: the power of a client's loss")

    def make(self) -> Recipe:
        """Weights by the loss."""
        return recipes.qffl(self.strength)


class AgnosticConfig(OneModelConfig):
    """[recipe] of agnostic weights."""

    name: Literal["agnostic"] = "agnostic"
    about = "baseline agnostic FL: who fares worst is raised round by round"
    strength: NotNegative = Field(1.0, description="eta: how fast the worst are raised")

    def make(self) -> Recipe:
        """Weights that follow the worst."""
        return recipes.agnostic(self.strength)


class _FinishedConfig(RecipeConfig):
    """The key of recipes whose clients may finish their models alone."""

    until: Annotated[int, Field(ge=0, strict=True)] | None = Field(
        None, description="last round with rewards; after it clients finish their models alone; default: all have"
    )


class _ByReputationConfig(_FinishedConfig):
    """The keys of recipes that reward by a reputation."""

    half_life: Positive = Field(13.5, description="rounds after which a cosine counts half in the reputation")


class CGSVConfig(_ByReputationConfig):
    """[recipe] of CGSV [CGSV]."""

    name: Literal["cgsv"] = "cgsv"
    about = "baseline CGSV: rewards by a reputation for updates that go with the others'"
    beta: Positive = Field(1.0, description="altruism: the larger, the more alike are rewards")

    def make(self) -> Recipe:
        """Rewards by tanh of the reputation."""
        return recipes.cgsv(self.beta, self.half_life, self.until)


class RFFLConfig(_ByReputationConfig):
    """[recipe] of RFFL [RFFL]."""

    name: Literal["rffl"] = "rffl"
    about = "baseline RFFL: as CGSV, own training kept, bad names left out"
    least: Annotated[float, Field(ge=0, lt=1)] = Field(
        1 / 3, description="who has less than this share of the mean reputation gets no weight and no reward"
    )

    def make(self) -> Recipe:
        """Rewards in proportion to the reputation."""
        return recipes.rffl(self.least, self.half_life, self.until)


class StandaloneConfig(RecipeConfig):
    """[recipe] of clients that are on their own."""

    name: Literal["standalone"] = "standalone"
    about = "baseline: each client trains alone, nothing is aggregated; what others gain is measured against it"

    def make(self) -> Recipe:
        """Nobody gets anything."""
        return recipes.standalone()


class FinetunedConfig(RecipeConfig):
    """[recipe] of fine-tuned FedAvg."""

    name: Literal["finetuned"] = "finetuned"
    about = "baseline: FedAvg up to a round, then each client trains the shared model on, alone"
    until: Annotated[int, Field(ge=0, strict=True)] = Field(
        15, description="the last round in which models are averaged"
    )

    def make(self) -> Recipe:
        """Averaged, then alone."""
        return recipes.finetuned(self.until)


class FedAMPConfig(_FinishedConfig):
    """[recipe] of attention [FedAMP]."""

    name: Literal["fedamp"] = "fedamp"
    about = "baseline as FedAMP: each client's own aggregate, to which those like it add more"
    sharpness: NotNegative = Field(10.0, description="0: all get the same; the larger, the nearer to being alone")

    def make(self) -> Recipe:
        """An aggregate per client."""
        return recipes.fedamp(self.sharpness, self.until)


class CFLConfig(_FinishedConfig):
    """[recipe] of cosine splits [CFL]."""

    name: Literal["cfl"] = "cfl"
    about = "baseline CFL: groups whose clients pull against each other are split in two, for good"
    at: Annotated[float, Field(ge=0, le=1)] = Field(
        0.25, description="a group is split where its mean update is shorter than this part of its longest"
    )

    def make(self) -> Recipe:
        """A model per group."""
        return recipes.cfl(self.at, self.until)


class IFCAConfig(OneModelConfig):
    """[recipe] of IFCA [IFCA]."""

    name: Literal["ifca"] = "ifca"
    about = "baseline IFCA: several models at the server; each client trains the one that fits its rows best"
    models: Annotated[int, Field(ge=1, strict=True)] = Field(2, description="how many models clients choose from")
    dealt: Annotated[int, Field(ge=0, strict=True)] = Field(
        1, description="in so many first rounds models are dealt by a draw; the paper's is 0"
    )

    def make(self) -> Recipe:
        """A model per group of clients, which choose it."""
        return recipes.ifca(self.models, self.dealt)


class DittoConfig(OneModelConfig):
    """[recipe] of Ditto [Ditto]."""

    name: Literal["ditto"] = "ditto"
    about = "baseline Ditto: FedAvg, and beside it a personal model that the shared one pulls; not on Flower"
    pull: NotNegative = Field(0.1, description="lambda: 0 is alone; the larger, the nearer to the shared model")

    def make(self) -> Recipe:
        """The shared model and one beside it."""
        return recipes.ditto(self.pull)
