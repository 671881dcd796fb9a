"""The laws on our recipes, on Flower's strategies, and on weightings that break each of them."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    FedAvg,
    FedMedian,
    Krum,
)

from fedmerit import Cap, LawResult, Recipe, check_weighting, criterion, fedavg, prioritized, robust
from fedmerit.checks import LAWS
from fedmerit.core.recipes import RECIPES
from fedmerit.core.types import Family
from fedmerit.core.weights.weigh import Weights
from fedmerit.errors import UserError
from fedmerit.flower import Merit

BY_ROWS = {"bounded influence", "bounded claim"}
"""What a mean by reported rows cannot keep."""
SPLIT = {"split client"}
"""What a rule breaks that counts clients, and not their rows."""
FAILED_BY: dict[str, set[str]] = {
    **dict.fromkeys(("fedavg", "last_answers", "prioritized", "device_aware", "ditto", "ifca", "finetuned"), BY_ROWS),
    "adaptive": {"bounded influence"},
    "agnostic": SPLIT | {"bounded influence"},
    "cosine_rewards": SPLIT | BY_ROWS,
    **dict.fromkeys(("fedval", "qffl", "robust"), SPLIT),
    "discounted": SPLIT,
    "m2f": set(),
    "robust_server": set(),
}
FAULTS_OF_FEDAVG = {
    *("nan update", "infinite update", "wrong shape", "broadcast shape", "missing array", "nan claim"),
    *("infinite claim", "negative claim", "missing claim", "further metric", "all claims zero"),
    *("no test rows", "unasked reply", "repeated reply", "form of the model"),
}


def failed(results: Sequence[LawResult]) -> set[str]:
    assert [result.law for result in results] == list(LAWS)
    assert all(result.text for result in results if not result.passed)
    return {result.law for result in results if result.passed is False}


def not_applicable(results: Sequence[LawResult]) -> dict[str, str]:
    return {result.law: result.text for result in results if result.passed is None}


@pytest.mark.parametrize("name", RECIPES)
def test_a_named_recipe_keeps_the_laws_but_those_that_are_named_here(name: str):
    results = check_weighting(RECIPES[name][0]())
    if name in FAILED_BY:
        assert failed(results) == FAILED_BY[name]
        assert ("cap" in not_applicable(results)) == (name not in ("adaptive", "robust", "robust_server"))
    else:  # clients that train alone, a mixture of models, or all rows in one place
        assert set(not_applicable(results)) == set(LAWS)


def test_where_fedavg_fails_on_faulty_replies_merit_does_not():
    theirs, ours = check_weighting(FedAvg), check_weighting(Merit(fedavg()))
    assert failed(theirs) == FAULTS_OF_FEDAVG | BY_ROWS
    assert failed(ours) == BY_ROWS
    assert set(not_applicable(theirs)) == {"cap", "resume", "same on flower"}
    assert set(not_applicable(ours)) == {"cap", "resume"}
    assert failed(check_weighting(Merit(robust()))) == SPLIT


class Weighted(FedAvg):
    """A mean with any weights, by the claimed rows of the replies in the order in which they come."""

    def __init__(self, rule: Callable[[np.ndarray], Any], **settings: Any) -> None:
        super().__init__(**settings)
        self.rule = rule

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        contents = [reply.content for reply in replies if not reply.has_error()]
        if not contents:
            return None, None
        weights = self.rule(np.array([content["metrics"]["num-examples"] for content in contents], float))
        names = contents[0]["arrays"]
        sums = {name: sum(weights[i] * one["arrays"][name].numpy() for i, one in enumerate(contents)) for name in names}
        return ArrayRecord({name: Array(np.asarray(total)) for name, total in sums.items()}), None


def share(values: np.ndarray) -> np.ndarray:
    return values / values.sum()


def uncapped(weights: Weights, facts: Any) -> Weights:
    return weights if weights.uncapped is None else replace(weights, weights=weights.uncapped)


def forgetful() -> Recipe:
    """A recipe that keeps a state where no checkpoint finds it."""
    calls: list[int] = []

    @criterion("Forgetful", Family.DATA, "rows and the number of calls", facts=["samples"])
    def values(cohort: Any, history: Any) -> np.ndarray:
        calls.append(1)
        return cohort.facts["samples"] + len(calls)

    return prioritized(values)


BROKEN: dict[str, Any] = {
    "permutation": Weighted(lambda rows: share(np.arange(1.0, len(rows) + 1))),
    "determinism": lambda: Weighted(lambda rows: share(np.random.default_rng().random(len(rows)))),
    "equal clients": Krum(),
    "scale of facts": Weighted(lambda rows: share(rows + 50)),
    "split client": FedMedian(),
    "weights of a mean": Weighted(lambda rows: share(rows) + np.resize([0.5, -0.5], len(rows))),
    "agreement": Weighted(lambda rows: np.resize([1.1, -0.9], len(rows))),
    "one client": Weighted(lambda rows: share(rows) / float(len(rows) > 1)),
    "zero update": DifferentialPrivacyServerSideAdaptiveClipping(FedAvg(), 0.1, 10),
    "zero claim": Weighted(lambda rows: share(1 / rows)),
    "error reply": Weighted(lambda rows: share(rows) * (1 if len(rows) > 9 else -9)),
    "empty round": DifferentialPrivacyServerSideAdaptiveClipping(FedAvg(), 0.1, 10),
    "cap": replace(fedavg(), limits=(Cap(1.2), uncapped)),
    "monotone": Weighted(lambda rows: share(1 / rows)),
    "resume": forgetful(),
    "same on flower": forgetful(),
}


@pytest.mark.parametrize("law", [law for law in LAWS if law not in FAULTS_OF_FEDAVG | BY_ROWS])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_every_law_that_fedavg_keeps_is_broken_by_some_weighting(law: str):
    assert law in failed(check_weighting(BROKEN[law]))


def test_the_published_table_has_every_law_with_its_statement():
    page = (Path(__file__).parents[2] / "benchmarks" / "weighbench" / "laws.md").read_text(encoding="utf-8")
    for name, law in LAWS.items():
        assert f"| {name} | {law.statement} | {law.protects} |" in page.replace("\\|", "|")
    assert page.count("```python") == page.count("```text") + 1  # a snippet after the common lines, and what it prints


def locked() -> FedAvg:
    strategy = FedAvg()
    strategy.lock = threading.Lock()  # type: ignore[attr-defined]
    return strategy


@pytest.mark.parametrize(
    ("weighting", "says"),
    [
        (42, "needs a Recipe, a Strategy"),
        (FedAvg(fraction_train=0.5), "asks 5 of 10 nodes; set fraction_train=1.0"),
        (FedAvg(min_available_nodes=11), "waits for more than 10 nodes"),
        (locked(), "pass a function that makes it: check_weighting(lambda: FedAvg(...))"),
        (DifferentialPrivacyClientSideAdaptiveClipping(FedAvg(), 0.1, 10), "name them: .*metrics="),
    ],
)
def test_what_cannot_be_checked_is_an_error_with_a_way_out(weighting: Any, says: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("flwr.serverapp.strategy.strategy_utils.sleep", lambda seconds: None)
    with pytest.raises(UserError, match=says.replace("(", r"\(").replace(")", r"\)")):
        check_weighting(weighting)


def test_a_function_makes_a_strategy_that_cannot_be_copied_and_metrics_help_one_that_needs_them():
    assert failed(check_weighting(locked)) == FAULTS_OF_FEDAVG | BY_ROWS
    private = DifferentialPrivacyClientSideAdaptiveClipping(FedAvg(), 0.1, 10)
    assert "nan update" in failed(check_weighting(private, metrics={"norm_bit": 1}))


def test_a_recipe_needs_neither_flower_nor_torch():
    code = """
import sys
sys.modules["flwr"] = sys.modules["torch"] = None
from fedmerit import check_weighting, fedavg
result = check_weighting(fedavg())[-1]
print(result.law, result.passed, "flwr" in result.text)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == "same on flower None True"
