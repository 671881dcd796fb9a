"""task.centre and task.invert through whole runs: what is learned, what is kept, and the same on every fleet."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from fleets import on_flower
from flwr.app import Message
from helpers import stopped

from fedmerit import Run, Task, TorchLearner, federate, load_config, load_task, m2f, resume, run_config, run_on
from fedmerit.core.criteria.table import DATA_RATIO, PARTICIPATION
from fedmerit.core.server.centring import centre_model, feature_sums, make_centring
from fedmerit.errors import ConfigError
from fedmerit.fleet.local import LocalFleet
from fedmerit.flower.messages import pack
from fedmerit.learn.models import two_convolutions
from fedmerit.tasks.registry import make_task

SETTINGS = ["task.clients=4", "task.centre=mean", "run.rounds=3", "run.fraction=0.5", "run.workers=1", "train.batch=20"]


def digits(**settings: object) -> Task:
    return load_task("digits", clients=4, train={"epochs": 1, "batch": 20}, **settings)


@pytest.mark.parametrize("centre", ["mean", "standard"])
@pytest.mark.parametrize("model", ["digits-mlp", "digits-linear"])
def test_as_if_the_data_were_centred_before(centre: str, model: str):
    """A model that carries its centring does with raw rows what one without does with rows centred by hand."""
    task = digits(centre=centre, model=model)
    with LocalFleet(task) as fleet:
        centring = make_centring(fleet.sum_features()[0], centre)  # type: ignore[arg-type]
    rows = task.federation.samples(0)
    ready = replace(rows, x=centring(rows.x / 255).astype(np.float32))
    start = task.learner.start(0)
    carried = task.learner.centred(start, centring)
    expected = task.learner.train(start, ready, 7)
    trained = task.learner.train(carried, rows, 7)
    np.testing.assert_allclose(trained[: len(start)], expected, atol=2e-5)
    assert trained[len(start) :].tobytes() == carried[len(start) :].tobytes()
    together = task.learner.train_batched([carried] * 2, [rows] * 2, [7, 8], [None] * 2)
    np.testing.assert_allclose(together[0], trained, atol=2e-5)
    np.testing.assert_allclose(
        task.learner.predict_proba(trained, rows.x), task.learner.predict_proba(expected, ready.x), atol=1e-4
    )


def test_pictures_for_convolutions_are_centred_pixel_by_pixel():
    learner = TorchLearner(partial(two_convolutions, 1, 8, 3, 16, 10))
    random = np.random.default_rng(0)
    x = random.integers(0, 256, (12, 8, 8, 1)).astype(np.uint8)
    centring = make_centring({0: feature_sums(x)}, "mean")
    start = learner.start(0)
    ready = centring(x / 255).astype(np.float32)
    np.testing.assert_allclose(
        learner.predict_proba(learner.centred(start, centring), x), learner.predict_proba(start, ready), atol=1e-5
    )


def test_the_same_bits_for_every_number_of_workers_and_on_flower(tmp_path: Path):
    config = load_config(None, SETTINGS)
    models = []
    for workers in (1, 2):
        with LocalFleet(make_task(config), workers) as fleet:
            models.append(run_on(fleet, config, tmp_path / str(workers)).model)
    models.append(run_on(on_flower(make_task(config)), config, tmp_path / "flower").model)
    assert models[0].tobytes() == models[1].tobytes()
    np.testing.assert_allclose(models[2], models[0], atol=1e-6)  # batched clients differ in rounding


def test_a_saved_model_knows_its_centring_and_a_resume_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    config = load_config(None, SETTINGS)
    whole = run_config(config, tmp_path / "whole")
    stopped(config, tmp_path / "killed")
    monkeypatch.setattr(LocalFleet, "sum_features", None)  # a resume does not ask again
    assert resume(tmp_path / "killed").model.tobytes() == whole.model.tobytes()
    loaded, task = Run.load(tmp_path / "whole"), make_task(config)
    test = task.federation.test
    assert (task.learner.predict(loaded.model, test.x) == test.y).mean() == pytest.approx(loaded.accuracy)
    (note,) = [event for event in loaded.events() if event.kind == "centre"]
    assert note.round == 0
    assert "4 clients" in note.text


def test_clients_with_personal_models_keep_the_centring():
    task = digits(centre="mean", validation=0.2)
    run = federate(task, m2f(PARTICIPATION, DATA_RATIO, initial=0.5), rounds=3, fraction=1.0)
    assert run.accuracy > 0.5
    assert len(run.model) == len(task.learner.start(0)) + 64


def test_a_client_that_lies_is_left_out_of_the_mean():
    task = digits(centre="mean")
    honest = on_flower(task)
    model = task.learner.start(0)
    liar = on_flower(task)
    deliver = liar.grid.deliver  # type: ignore[attr-defined]

    def lie(message: Message) -> Message:
        reply = deliver(message)
        if message.metadata.message_type == "query.sum" and message.metadata.dst_node_id == 1002:
            nans = np.full(64, np.nan)
            return Message(pack({"sums": nans, "squares": nans}, metrics={"rows": [5]}), reply_to=message)
        if message.metadata.message_type == "query.sum" and message.metadata.dst_node_id == 1003:
            return Message(pack({"sums": np.zeros(64, np.int64)}, metrics={"rows": [5]}), reply_to=message)
        return reply

    liar.grid.deliver = lie  # type: ignore[attr-defined, method-assign]
    found, left_out, about = centre_model(model, task.learner, liar, "mean", 2000)
    assert "NaN" in left_out[2]
    assert "int64" in left_out[3]
    assert "2 clients" in about
    sums, _ = honest.sum_features()
    expected = make_centring({client: sums[client] for client in (0, 1)}, "mean")
    np.testing.assert_allclose(found[len(model) :], expected.mean, rtol=1e-6)


def test_spellings():
    assert load_config(None, ["task.centre=true"]).task.centre == "mean"
    assert load_config(None, ["task.centre=false"]).task.centre == "none"
    with pytest.raises(ConfigError, match=r"task\.centre.*'mean'.*'standard'"):
        load_config(None, ["task.centre=median"])
