"""Algorithms under published names equal transcriptions of their papers' pseudo-code, written without our parts."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import CannedFleet, run_canned
from hypothesis import given
from hypothesis import strategies as st

from fedmerit import Server, agnostic, ditto, fedamp, fedavg, federate, ifca, load_task, qffl
from fedmerit.core.collect.collect import InTime, Uniform
from fedmerit.core.criteria.loss import QFedAvgStep
from fedmerit.core.host import Host
from fedmerit.core.models.clusters import models_in
from fedmerit.core.round import initial_state, run_round
from fedmerit.core.seeds import derive, train_seed
from fedmerit.core.server.aggregators import MultiKrum
from fedmerit.core.server.optimizers import Adam, FedExP, Yogi
from fedmerit.core.server.server import Aggregate, Batch, ServerOptimizer
from fedmerit.core.state import State
from fedmerit.core.types import EMPTY, Cohort
from fedmerit.core.updates import Updates
from fedmerit.errors import ConfigError
from fedmerit.fleet.local import LocalFleet

SIZES = {"min_value": 0.01, "max_value": 10.0, "allow_nan": False}
LOSSES = st.lists(st.floats(**SIZES), min_size=2, max_size=6)


def fleet_of(updates: np.ndarray, losses: list[float]) -> CannedFleet:
    return CannedFleet(updates, [{"samples": 10.0, "loss": loss} for loss in losses], length=updates.shape[1])


@given(LOSSES, st.floats(0, 3), st.floats(0.01, 1), st.integers(0, 99))
def test_q_fedavg_is_algorithm_2(losses: list[float], q: float, lr: float, seed: int):
    """Li et al. 2020, Algorithm 2, lines 4 to 6."""
    random = np.random.default_rng(seed)
    before, trained = random.normal(size=3).astype(np.float32), random.normal(size=(len(losses), 3)).astype(np.float32)
    smoothness = 1 / lr
    differences = [smoothness * (before - one) for one in trained.astype(np.float64)]
    deltas = [loss**q * difference for loss, difference in zip(losses, differences, strict=True)]
    steps = [
        q * loss ** (q - 1) * np.linalg.norm(difference) ** 2 + smoothness * loss**q
        for loss, difference in zip(losses, differences, strict=True)
    ]
    expected = before - sum(deltas) / sum(steps)
    state, _ = run_canned(qffl(q, lr), fleet_of(trained - before, losses), State(before))
    np.testing.assert_allclose(state.model, expected, rtol=1e-4, atol=1e-5)


def test_q_fedavg_reads_the_learning_rate_of_the_run_or_asks_for_it():
    task = load_task("digits", clients=3, train={"lr": 0.25})
    explicit, read = (federate(task, qffl(1.0, lr), rounds=2, seed=1) for lr in (0.25, None))
    assert np.array_equal(explicit.model, read.model)
    assert not np.array_equal(explicit.model, federate(task, qffl(1.0, 0.5), rounds=2, seed=1).model)
    fleet = fleet_of(np.ones((2, 2), np.float32), [1.0, 2.0])
    unknown, state = replace(Host.of(fleet), lr=None), State(np.zeros(2, np.float32))
    with pytest.raises(ConfigError, match=r"needs the clients' learning rate \(got none\); set lr"):
        run_round(state, qffl(), unknown, InTime(Uniform(1.0)), seed=0)


def test_q_fedavg_without_any_loss_takes_the_mean():
    cohort = Cohort(1, (0, 1), Updates(np.ones((2, 2), np.float32)), {"loss": np.zeros(2)})
    assert QFedAvgStep(1.0).factor(cohort, 0.1) == 1.0


def projected(values: np.ndarray) -> np.ndarray:
    """The projection on the simplex, by bisection for its threshold."""
    low, high = values.min() - 1, values.max()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(values - middle, 0).sum() > 1 else (low, middle)
    return np.maximum(values - low, 0)


@given(st.lists(LOSSES.map(lambda one: (one * 3)[:5]), min_size=1, max_size=5), st.floats(0, 2))
def test_agnostic_weights_are_algorithm_1(rounds: list[list[float]], eta: float):
    """Mohri et al. 2019, Algorithm 1: the model moves by lambda before the ascent of the round."""
    updates, state, mixture = np.eye(5, dtype=np.float32), None, np.full(5, 0.2)
    for losses in rounds:
        state, record = run_canned(agnostic(eta), fleet_of(updates, losses), state)
        np.testing.assert_allclose(record.weights.weights, mixture, atol=1e-6)
        mixture = projected(mixture + eta * np.array(losses))


def test_agnostic_counts_absent_clients_and_survives_false_losses():
    """Of three clients one did not answer: the gradient is scaled by 3 / 2, and the absent one keeps its entry."""
    fleet = CannedFleet(np.eye(2, dtype=np.float32), [{"samples": 1.0, "loss": one} for one in (1.0, 3.0)], {2: "off"})
    state, _ = run_canned(agnostic(0.1), fleet)
    expected = projected(np.full(3, 1 / 3) + 0.1 * 1.5 * np.array([1.0, 3.0, 0.0]))
    np.testing.assert_allclose(state.own["stage:Agnostic"]["mixture"], expected, atol=1e-9)
    liar = fleet_of(np.eye(2, dtype=np.float32), [1e308, 1.0])
    after = run_canned(agnostic(1.0), liar)[0].own["stage:Agnostic"]["mixture"]
    assert after.tolist() == [1, 0]


@pytest.mark.parametrize("name", ["adam", "yogi"])
def test_adaptive_optimizers_are_algorithm_2(name: str):
    """Reddi et al. 2021, Algorithm 2: v starts at tau squared; no bias correction."""
    beta1, beta2, tau, lr = 0.9, 0.99, 1e-3, 0.1
    made: dict[str, ServerOptimizer] = {
        "adam": Adam(lr, beta2),
        "yogi": Yogi(lr, beta2),
    }
    random = np.random.default_rng(1)
    model, own, x, m, v = np.zeros(4, np.float32), EMPTY, np.zeros(4), np.zeros(4), np.full(4, tau**2)
    for index in range(1, 6):
        delta = random.normal(size=4).astype(np.float32)
        model, own = made[name](model, Aggregate(delta), own, index)
        m = beta1 * m + (1 - beta1) * delta
        if name == "yogi":
            v = v - (1 - beta2) * delta**2 * np.sign(v - delta**2)
        else:
            v = beta2 * v + (1 - beta2) * delta**2
        x = x + lr * m / (np.sqrt(v) + tau)
        np.testing.assert_allclose(model, x, rtol=1e-4, atol=1e-6)


@given(st.integers(4, 9), st.data(), st.integers(0, 999))
def test_krum_and_multi_krum_as_published(number: int, data: st.DataObject, seed: int):
    """Blanchard et al. 2017: s(i) sums the squared distances to the n - f - 2 nearest; m of them are averaged."""
    attackers = data.draw(st.integers(0, (number - 3) // 2))
    average = data.draw(st.integers(1, number - attackers))
    updates = np.random.default_rng(seed).normal(size=(number, 3)).astype(np.float32)
    scores = []
    for i in range(number):
        distances = sorted(float(np.sum((updates[i].astype(float) - updates[j]) ** 2)) for j in range(number) if j != i)
        scores.append(sum(distances[: number - attackers - 2]))
    best = sorted(range(number), key=lambda i: scores[i])
    equal = np.full(number, 1 / number)
    for m, rule in ((average, MultiKrum(attackers / number, average)), (1, MultiKrum(attackers / number, 1))):
        np.testing.assert_allclose(rule(Batch(Updates(updates)), equal), updates[best[:m]].mean(axis=0), atol=1e-5)
    usual = MultiKrum(attackers / number)(Batch(Updates(updates)), equal)
    np.testing.assert_allclose(usual, updates[best[: number - attackers]].mean(axis=0), atol=1e-5)


def test_fedamp_is_algorithms_1_and_2():
    """Huang et al. 2021: three rounds in which all clients take part, client by client."""
    alpha, sigma, lam, clients, seed = 0.5, 4.0, 0.2, 4, 3
    task = load_task("digits", clients=clients, partition="dirichlet", alpha=0.3, train={"lr": 0.1, "epochs": 1})
    learner = task.learner
    models = [learner.start(seed)] * clients
    state = State(models[0])
    for index in (1, 2, 3):
        mixtures = []
        for i in range(clients):
            weights = {
                j: alpha / sigma * np.exp(-float(np.sum((models[i].astype(float) - models[j]) ** 2)) / sigma)
                for j in range(clients)
                if j != i
            }
            own = 1 - sum(weights.values())
            mixture = own * models[i].astype(float) + sum(weight * models[j] for j, weight in weights.items())
            mixtures.append(models[i] if index == 1 else mixture.astype(np.float32))
        models = [
            learner.train_pulled(
                models[i].copy(),
                mixtures[i],
                lam / alpha,
                task.federation.train.samples(i, task.federation.classes),
                derive(train_seed(seed, index, i), "beside"),
                None,
            )
            for i in range(clients)
        ]
    with LocalFleet(task) as fleet:
        for _ in range(3):
            state, _ = run_round(
                state, fedamp(alpha, sigma, lam), Host.of(fleet), InTime(Uniform(1.0)), seed, evaluate=False
            )
        ours = [state.own["models"]["clients"][str(i)] for i in range(clients)]
        kept = fleet.evaluate_personal(models[0])
        correct = [fleet.evaluate([model])[0].correct[i] for i, model in enumerate(models)]
    for one, expected in zip(ours, models, strict=True):
        np.testing.assert_allclose(one, expected, atol=2e-4)
    assert kept.correct.tolist() == correct  # clients keep the models that they trained


@given(st.integers(2, 6), st.integers(0, 999))
def test_fedexp_is_algorithm_1(number: int, seed: int):
    """Jhunjhunwala et al. 2023: the server's rate is max(1, sum ||delta_i||^2 / (2 M (||mean||^2 + epsilon)))."""
    updates = np.random.default_rng(seed).normal(size=(number, 3)).astype(np.float32)
    mean = sum(updates[i].astype(float) for i in range(number)) / number
    squares = sum(float(updates[i].astype(float) @ updates[i]) for i in range(number))
    rate = max(1.0, squares / (2 * number * (mean @ mean + 0.001)))
    recipe = replace(fedavg(), server=Server(optimizer=FedExP()))
    state, _ = run_canned(recipe, fleet_of(updates, [1.0] * number))
    np.testing.assert_allclose(state.model, rate * mean, rtol=1e-3, atol=1e-5)


def test_ditto_is_algorithm_1():
    """Li et al. 2021: v_k takes the steps of w_k, with the gradient of lambda / 2 ||v - w||^2 added."""
    clients, seed, pull = 4, 3, 0.5
    task = load_task("digits", clients=clients, partition="dirichlet", alpha=0.3, train={"lr": 0.1, "epochs": 1})
    learner, rows = task.learner, [task.federation.samples(i) for i in range(clients)]
    shared = learner.start(seed)
    state, personal = State(shared), [shared] * clients
    with LocalFleet(task) as fleet:
        for index in (1, 2, 3):
            state, _ = run_round(state, ditto(pull), Host.of(fleet), InTime(Uniform(1.0)), seed, evaluate=False)
            seeds = [train_seed(seed, index, i) for i in range(clients)]
            trained = [learner.train(shared.copy(), rows[i], seeds[i]) for i in range(clients)]
            personal = [
                learner.train_pulled(personal[i].copy(), shared, pull, rows[i], derive(seeds[i], "beside"), None)
                for i in range(clients)
            ]
            shared = np.average(trained, axis=0, weights=[len(one.y) for one in rows]).astype(np.float32)
        kept = fleet.evaluate_personal(shared).correct.tolist()
        assert kept == [fleet.evaluate([model])[0].correct[i] for i, model in enumerate(personal)]
    np.testing.assert_allclose(state.model, shared, atol=1e-5)


def test_ifca_is_algorithm_1_with_model_averaging():
    """Ghosh et al. 2020: each client trains the model of least loss; a model is the mean of those trained from it."""
    clients, seed = 4, 3
    task = load_task("digits", clients=clients, partition="dirichlet", alpha=0.1, train={"lr": 0.1, "epochs": 1})
    learner, rows = task.learner, [task.federation.samples(i) for i in range(clients)]
    with LocalFleet(task) as fleet:
        host = Host.of(fleet)
        state, _ = initial_state(ifca(3), host, fleet.server.first_model(seed), seed)
        models, chosen_ever = list(models_in(state)), set[int]()
        for index in (1, 2, 3):
            state, _ = run_round(state, ifca(3), host, InTime(Uniform(1.0)), seed, evaluate=False)
            losses = [
                [-np.log(learner.predict_proba(model, one.x)[np.arange(len(one.y)), one.y]).mean() for model in models]
                for one in rows
            ]
            chosen = np.argmin(losses, axis=1)
            trained = [
                learner.train(models[chosen[i]].copy(), rows[i], train_seed(seed, index, i)) for i in range(clients)
            ]
            for j in sorted(set(chosen.tolist())):
                members = np.flatnonzero(chosen == j)
                sizes = [len(rows[i].y) for i in members]
                models[j] = np.average([trained[i] for i in members], axis=0, weights=sizes).astype(np.float32)
            chosen_ever |= set(chosen.tolist())
    assert len(chosen_ever) > 1
    np.testing.assert_allclose(models_in(state), models, atol=1e-5)
