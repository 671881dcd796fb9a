"""Merit with privacy: its own account, its own draw, and the server's model where nobody was drawn."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import Mod
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
from flwr.supercore.privacy_accounting import NeighboringRelation, PrivacyConfig, SamplingMethod
from flwr.supercore.privacy_accounting.rdp_accountant import RdpAccountant
from small_app import Arrays, make_app

from fedmerit import prioritized
from fedmerit.config.privacy import epsilon_after
from fedmerit.core.recipe import Recipe
from fedmerit.core.recipes import private
from fedmerit.core.server.private_sum import PrivateSum
from fedmerit.core.weights.weigh import scale
from fedmerit.errors import ConfigError
from fedmerit.flower import InProcessGrid, Merit, clip_mod
from fedmerit.flower.clientapp import clipped_model

NODES, LENGTH, ROUNDS = 6, 5, 4
SETTINGS = {"min_train_nodes": 1, "min_available_nodes": NODES, "fraction_evaluate": 0.0}


def private_recipe(noise: float, fraction: float, **settings: Any) -> Recipe:
    privacy = PrivateSum(noise, fraction, **{"delta": 0.01, "reproducible": True, **settings})
    return private(prioritized("DS", normalise=scale({"DS": 100})), privacy)


def clipped_app(mods: Sequence[Mod] = ()) -> ClientApp:
    """Every node moves the model by (2, 0, 0 ...), twice the clip, and has 50 rows."""

    def move(place: int, arrays: Arrays) -> Arrays:
        return {"w": arrays["w"] + 2 * np.eye(1, LENGTH, dtype=np.float32)[0]}

    return make_app(lambda place: {"num-examples": 50, "secret": 1.0}, move=move, mods=mods)


def played(strategy: Merit, mods: Sequence[Mod] = ()) -> np.ndarray:
    start = ArrayRecord({"w": Array(np.zeros(LENGTH, np.float32))})
    result = strategy.start(InProcessGrid(clipped_app(mods), NODES), start, num_rounds=ROUNDS)
    assert not result.train_metrics_clientapp, "metrics of clients are not in the account"
    return result.arrays["w"].numpy()


def test_epsilon_is_kept_and_the_denominator_is_fixed() -> None:
    strategy = Merit(private_recipe(1e-6, 0.5), fraction_train=0.5, **SETTINGS)
    moved = played(strategy)[0]
    came = [len(record.ids) for record in strategy.records]
    assert len(set(came)) > 1, "how many are drawn differs from round to round"
    assert moved == pytest.approx(sum(came) * 0.5 / (0.5 * NODES), rel=1e-3)  # half a score, over q K
    noisy = Merit(private_recipe(1.1, 0.5), fraction_train=0.5, **SETTINGS)
    played(noisy)
    wanted = [epsilon_after(1.1, 0.5, index, 0.01) for index in range(1, ROUNDS + 1)]
    assert [record.epsilon for record in noisy.records] == pytest.approx(wanted)


def test_a_clip_at_the_client_is_the_clip_at_the_server() -> None:
    at_server, at_client = (Merit(private_recipe(0.5, 0.5), fraction_train=0.5, **SETTINGS) for _ in "ab")
    assert played(at_server) == pytest.approx(played(at_client, [clip_mod(1.0)]), rel=1e-6)
    lengths = {round(float(norm), 3) for record in at_client.records for norm in record.diagnostics.norms}
    assert lengths == {1.0}, "no longer update left a client"
    assert any(note.kind == "clipped" for record in at_server.records for note in record.notes)
    assert not any(note.kind == "clipped" for record in at_client.records for note in record.notes)


def test_the_mod_cuts_all_arrays_together_and_leaves_short_ones() -> None:
    start = ArrayRecord({"a": Array(np.ones(1, np.float32)), "b": Array(np.ones((1, 1), np.float64))})
    long = ArrayRecord({"b": Array(np.array([[5.0]])), "a": Array(np.array([4.0], np.float32))})
    cut = clipped_model(start, long, 1.0)  # the update is (3, 4)
    assert cut["a"].numpy() == pytest.approx([1.6])
    assert cut["b"].numpy() == pytest.approx(np.array([[1.8]]))
    assert cut["b"].numpy().dtype == np.float64
    assert clipped_model(start, long, 5.0) is long
    with pytest.raises(ConfigError, match="greater than 0"):
        clip_mod(0)


def test_unweighted_epsilon_is_that_of_flowers_accounted_wrapper() -> None:
    settings = PrivacyConfig(
        target_delta=0.01,
        population_size=NODES,
        sampling_method=SamplingMethod.NO_AMPLIFICATION,  # the one that its wrappers take: everybody in every round
        neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
    )
    wrapper = DifferentialPrivacyServerSideFixedClipping(
        FedAvg(fraction_train=1.0, **SETTINGS), 1.5, 1.0, NODES, accountant=RdpAccountant(settings)
    )
    start = ArrayRecord({"w": Array(np.zeros(LENGTH, np.float32))})
    wrapper.start(InProcessGrid(clipped_app(), NODES), start, num_rounds=ROUNDS)
    ours = Merit(private_recipe(1.5, 1.0), **SETTINGS)
    played(ours)
    spent = wrapper.privacy_spent()
    assert ours.records[-1].epsilon == pytest.approx(spent.epsilon, rel=1e-6)


def test_rounds_without_a_node_release_noise() -> None:
    strategy = Merit(private_recipe(1.0, 0.001), fraction_train=0.001, **SETTINGS)
    assert (played(strategy) != 0).all()
    assert [record.ids for record in strategy.records] == [()] * ROUNDS


def test_noise_is_secret_unless_it_is_asked_for() -> None:
    again, real = (
        [Merit(private_recipe(1.0, 1.0, reproducible=one), **SETTINGS) for _ in "ab"] for one in (True, False)
    )
    assert (played(again[0]) == played(again[1])).all()
    assert (played(real[0]) != played(real[1])).all()


def test_the_account_is_of_the_draw() -> None:
    with pytest.raises(ConfigError, match=r"account is for a fraction of 0.5, and 1 of the clients are drawn"):
        Merit(private_recipe(1.0, 0.5), **SETTINGS)
    with pytest.raises(ConfigError, match=r"privacy.delta must be at most 1 / clients = 0.005"):
        Merit(private_recipe(1.0, 1.0), min_available_nodes=200)
