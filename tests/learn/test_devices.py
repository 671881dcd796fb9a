"""Devices: on the CPU, on one that records what goes there and back, and on torch's `meta` for shapes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedmerit import fedavg, federate, load_task
from fedmerit.config.schema import TrainConfig, load_config, make_config
from fedmerit.core.types import Samples
from fedmerit.core.updates import Updates
from fedmerit.engine.run import count_workers, device_of, on_devices, resume, run_config
from fedmerit.errors import ConfigError, FolderError, RunFailed
from fedmerit.fleet.pool import Placed
from fedmerit.fleet.worker import Worker
from fedmerit.learn import devices
from fedmerit.learn.devices import CPU, Device, DeviceSums, find_devices
from fedmerit.learn.outputs import output_of
from fedmerit.learn.sgd import TorchLearner
from fedmerit.learn.together import Together


@dataclass(frozen=True, eq=False)
class Recording(Device):
    """A device with memory of its own, which is this machine's; it writes down every transfer in bytes."""

    name: str = "fake:0"
    free: int | None = None
    log: list[tuple[str, int]] = field(default_factory=list)

    __eq__, __hash__ = object.__eq__, object.__hash__  # each has its own modules

    @property
    def kind(self) -> str:
        return "cpu"

    def put(self, array: np.ndarray) -> Tensor:
        self.log.append(("put", array.nbytes))
        return torch.from_numpy(np.array(array))

    def fetch(self, tensor: Tensor) -> np.ndarray:
        self.log.append(("fetch", tensor.nbytes))
        return tensor.detach().numpy().copy()

    def empty(self, values: int) -> Tensor:
        return torch.empty(values)

    def place(self, module: nn.Module) -> nn.Module:
        return module

    @property
    def free_bytes(self) -> int | None:
        return self.free

    def moved(self, way: str) -> list[int]:
        return [size for kind, size in self.log if kind == way]


class Meta(Device):
    """torch's device without data: an operation on tensors of two devices is an error there, too."""

    def fetch(self, tensor: Tensor) -> np.ndarray:
        assert tensor.device.type == "meta"
        return np.zeros(tensor.shape, np.float32)


class Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = nn.RNNCell(4, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.cell(x[:, 1], self.cell(x[:, 0])))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix, self.out = nn.MultiheadAttention(4, 2, batch_first=True), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"logits": self.out(self.mix(x, x, x, need_weights=True)[0].mean(1))}


class Centred(nn.Module):
    """Rows of a batch depend on each other, which no type of layer tells."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(x.flatten(1) - x.flatten(1).mean(0))


def cnn() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 3))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3))


def dropped() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(8, 6), nn.Dropout(0.5), nn.Linear(6, 3))


def clients(shape: tuple[int, ...], images: bool = False) -> list[Samples]:
    random = np.random.default_rng(0)
    rows = [random.normal(size=(size, *shape)).astype(np.float32) for size in (10, 3, 7, 1)]
    rows = [(np.abs(x) * 40).astype(np.uint8) for x in rows] if images else rows
    return [Samples(x, random.integers(0, 3, len(x)), classes=3) for x in rows]


ADDED = {"momentum": 0.9, "clip": 0.5, "prox": 0.1, "weight_decay": 0.01}


@pytest.mark.parametrize("added", [{}, ADDED, {"optimizer": "adamw", "lr": 0.01, "weight_decay": 0.1}])
@pytest.mark.parametrize(
    ("build", "shape", "vectorised"),
    [
        (cnn, (4, 4, 1), True),
        (mlp, (8,), True),
        (Cell, (2, 4), True),
        (Attention, (2, 4), True),
        (dropped, (8,), False),
        (Centred, (2, 4), False),
    ],
)
def test_clients_trained_together_on_a_device_are_those_trained_alone_on_the_cpu(
    build: Callable[[], nn.Module], shape: tuple[int, ...], vectorised: bool, added: dict[str, float]
) -> None:
    config, device = TrainConfig(**{"lr": 0.1, "epochs": 2, "batch": 4, **added}), Recording()
    samples, learner = clients(shape, images=build is cnn), TorchLearner(build, config)
    there, start = replace(learner, devices=(device,)), learner.start(0)
    together = Together(there._flat, output_of(there.target), None)
    there._flat.module.train()
    assert together.works_for(samples[0], start) is vectorised
    assert there.clients_at_once == 64
    device.log.clear()
    trained = there.train_batched([start] * 4, samples, range(4), [None] * 4)
    alone = [learner.train(start, one, seed) for seed, one in enumerate(samples)]
    # Adam divides by gradients: one that is almost 0 may move the other way
    apart = max(np.abs(a - b).max() for a, b in zip(trained, alone, strict=True))
    assert apart < (1e-2 if "optimizer" in added else 1e-6)
    assert len(device.moved("fetch")) == (1 if vectorised else 4)
    assert sum(part.x.nbytes for part in samples) in device.moved("put") or not vectorised  # bytes stay bytes


def test_a_run_on_a_device_is_the_run_on_the_cpu_up_to_rounding() -> None:
    task, device = load_task("digits", clients=6, model="digits-mlp"), Recording()
    there = replace(task, learner=replace(task.learner, devices=(device,)))
    here = federate(task, fedavg(), rounds=2, fraction=1.0)
    run = federate(there, fedavg(), rounds=2, fraction=1.0)
    np.testing.assert_allclose(run.model, here.model, atol=1e-5)
    assert run.accuracy == pytest.approx(here.accuracy, abs=0.01)
    length = 4 * len(run.model)
    assert device.moved("fetch").count(6 * length) == 2  # all clients' models at once, in each of two rounds
    assert device.moved("put").count(6 * length) == 4  # the models they start from, and their updates to be summed


def test_on_meta_every_tensor_of_training_and_testing_is_on_the_device() -> None:
    for build, shape in ((cnn, (4, 4, 1)), (mlp, (8,)), (Cell, (2, 4))):
        samples = clients(shape, images=build is cnn)
        config = TrainConfig(lr=0.1, epochs=1, batch=4, **ADDED)
        learner = TorchLearner(build, config, devices=(Meta("meta"),))
        start = TorchLearner(build, config).start(0)
        assert learner.train(start, samples[0], 0).shape == start.shape
        learner._flat.module.train()
        together = Together(learner._flat, output_of(learner.target), None)
        batches = [list(learner._batches(one, 0, None)) for one in samples]
        assert [len(model) for model in together.train(config, [start] * 4, samples, batches)] == [len(start)] * 4
        assert learner.predict_proba(start, samples[0].x).shape == (10, 3)


def test_sums_on_a_device_keep_the_rows_there_within_the_budget() -> None:
    rows = np.random.default_rng(0).normal(size=(5, 40)).astype(np.float32)
    rows[2] = np.nan  # left out
    places, device = np.array([0, 1, 3, 4]), Recording()
    updates = Updates(rows, places, sums=DeviceSums(device, rows, None))
    weights = np.array([[0.1, 0.2, 0.3, 0.4], [1.0, 0.0, 0.0, 0.0]])
    np.testing.assert_allclose(updates.combine(weights), weights @ rows[places], rtol=1e-5)
    assert device.log == [("put", 4 * 40 * 4), ("put", 2 * 4 * 4), ("fetch", 2 * 40 * 4)]
    device.log.clear()
    kept = updates.keep(np.array([2, 0]))
    np.testing.assert_allclose(kept.combine(np.array([0.5, 0.5])), (rows[3] + rows[0]) / 2, rtol=1e-5)
    np.testing.assert_allclose(updates.mix(np.full(4, 2.0)).combine(weights[1]), 2 * rows[0], rtol=1e-5)
    assert device.moved("put") == [4 * 4, 4 * 4]  # weights alone
    device.log.clear()
    rows[0] = 7.0
    np.testing.assert_allclose(updates.renewed().combine(weights[1]), rows[0])
    assert device.moved("put")[0] == 4 * 40 * 4


@pytest.mark.parametrize(("budget", "free"), [(4 * 4 * 12, None), (None, 2 * 4 * 4 * 12)])
def test_sums_past_the_budget_see_the_rows_in_parts(budget: int | None, free: int | None) -> None:
    rows, device = np.arange(160, dtype=np.float32).reshape(4, 40), Recording(free=free)
    sums, weights = DeviceSums(device, rows, budget), np.array([0.1, 0.2, 0.3, 0.4], np.float32)
    np.testing.assert_allclose(sums(weights, np.arange(4)), weights @ rows, rtol=1e-5)
    assert device.moved("put") == [16, 4 * 4 * 12, 4 * 4 * 12, 4 * 4 * 12, 4 * 4 * 4]


@dataclass(frozen=True, eq=False)
class Full(Recording):
    """One that can hold a single client."""

    def put(self, array: np.ndarray) -> Tensor:
        if array.ndim == 2 and array.shape[0] > 1 and array.dtype == np.float32 and array.shape[1] == 650:
            raise torch.OutOfMemoryError("tried to allocate 9.00 GiB.")
        return super().put(array)


def test_a_full_device_is_told_with_what_is_free_and_clients_are_then_trained_alone() -> None:
    device = Full(free=3 * 2**29)
    learner = TorchLearner(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), TrainConfig(), devices=(device,))
    start, rows = learner.start(0), Samples(np.ones((3, 64), np.float32), np.array([0, 1, 2]), classes=10)
    with pytest.raises(RunFailed, match=r"fake:0 ran out of memory, 1\.50 GiB is free: tried to .* run\.device_memory"):
        learner.train_batched([start] * 2, [rows] * 2, [0, 1], [None] * 2)
    assert learner.train(start, rows, 0).shape == start.shape
    task = load_task("digits", clients=4)
    with pytest.raises(RunFailed, match=r"1\.50 GiB is free"):  # training goes client by client; the sum cannot
        federate(replace(task, learner=learner), fedavg(), rounds=1, fraction=1.0)


def test_mixed_precision_multiplies_in_bfloat16_and_keeps_single_precision_values() -> None:
    seen: list[torch.dtype] = []

    class Spy(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            outputs = super().forward(x)
            seen.append(outputs.dtype)
            return outputs

    samples, config = clients((8,))[0], TrainConfig(lr=0.1, epochs=1, batch=4)
    exact = TorchLearner(lambda: Spy(8, 3), config)
    mixed = replace(exact, devices=(Device("cpu", "bf16-mixed"),))
    start = exact.start(0)
    one, other = exact.train(start, samples, 0), mixed.train(start, samples, 0)
    assert set(seen) == {torch.float32, torch.bfloat16}
    assert other.dtype == np.float32
    assert 0 < np.abs(one - other).max() < 1e-2
    assert mixed.described == "cpu, bf16-mixed"
    assert mixed.predict_proba(start, samples.x).dtype == np.float32


def test_devices_are_found_or_named(monkeypatch: pytest.MonkeyPatch) -> None:
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match=r"'cuda:1' is none; torch .* knows of .*cpu"):
            find_devices("cuda:1")
    monkeypatch.setattr(devices, "known_devices", lambda: ["cuda:0", "cuda:1", "cpu"])
    assert [one.name for one in find_devices("auto")] == ["cuda:0", "cuda:1"]
    assert [one.name for one in find_devices("cuda")] == ["cuda:0"]
    assert find_devices(["cuda:1"], "bf16-mixed") == (Device("cuda:1", "bf16-mixed"),)
    monkeypatch.setattr(devices, "known_devices", lambda: ["cpu"])
    assert find_devices("auto") == (CPU,)


def test_workers_are_counted_for_each_device_and_share_them_in_turn() -> None:
    learner = TorchLearner(mlp, devices=(Device("fake:0"), Device("fake:1")))
    assert count_workers(learner, make_config({}).run) == 2
    assert count_workers(learner, make_config({"run": {"workers": 3}}).run) == 6
    assert [learner.at(worker).device.name for worker in range(3)] == ["fake:0", "fake:1", "fake:0"]
    assert issubclass(Worker, Placed)


@pytest.mark.parametrize("device", ["gpu", "cuda:", [], ["cuda:0", "cuda:0"], ["mps"], ["cpu", "cuda:0"]])
def test_a_name_that_is_no_device_is_refused(device: object) -> None:
    with pytest.raises(ConfigError, match="device is cpu, cuda, cuda:1, mps, auto, or a list of different ones"):
        make_config({"run": {"device": device}})


@pytest.mark.parametrize("setting", [{"precision": "bf16-mixed"}, {"device_memory": 1.0}])
def test_settings_of_devices_need_one(setting: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="have no effect on the CPU"):
        make_config({"run": setting})
    assert make_config({"run": {"device": ["cuda:0", "cuda:1"], **setting}}).run.device == ("cuda:0", "cuda:1")


def test_a_learner_without_devices_is_refused_one() -> None:
    class Plain:
        start = train = predict = None

    task = replace(load_task("digits", clients=4), learner=Plain())
    with pytest.raises(ConfigError, match="needs a learner with the methods of `DeviceLearner`"):
        on_devices(task, make_config({"run": {"device": "cuda"}}).run)
    assert device_of(Plain()) == "cpu"


def test_the_ledger_names_the_device_and_a_resume_compares_it(tmp_path: Path) -> None:
    config = load_config(None, ["task.clients=4", "run.rounds=1", "run.workers=1"])
    run = run_config(config, tmp_path / "run")
    assert run.ledger.meta()["device"] == "cpu"
    (tmp_path / "run" / "model.safetensors").unlink()
    with run.ledger.open(tmp_path / "run" / "ledger.db", write=True) as ledger:
        ledger._db.execute("UPDATE meta SET value = 'cuda (A100)' WHERE key = 'device'")
        ledger._db.commit()
    with pytest.raises(FolderError, match=r"was made on cuda \(A100\), and clients would train on cpu now"):
        resume(tmp_path / "run")
