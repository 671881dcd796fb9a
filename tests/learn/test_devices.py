"""Devices and kernels: on the CPU, on torch's `meta` for shapes, other ways to compute the same, kept in the ledger."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedmerit import Samples, TorchLearner, load_task
from fedmerit.config.schema import TrainConfig, load_config, make_config, make_recipe
from fedmerit.core.recipe_json import part_to_json
from fedmerit.engine.run import count_workers, device_of, on_devices, resume, run_config
from fedmerit.errors import ConfigError, FolderError
from fedmerit.learn import devices, sgd, stack
from fedmerit.learn.devices import find_device
from fedmerit.learn.flat import FlatModule
from fedmerit.learn.kernels import BY_CAPABILITY, FIRST, Kernels, dense_forward, find_kernels
from fedmerit.learn.models import two_convolutions
from fedmerit.store import run_folder
from fedmerit.store.run_folder import KERNELS, config_to_resume, make_folder, open_ledger


class Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = nn.RNNCell(4, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.cell(x[:, 1], self.cell(x[:, 0])))


def cnn() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 3))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3))


@pytest.mark.parametrize(("build", "shape"), [(cnn, (4, 4, 1)), (mlp, (8,)), (Cell, (2, 4))])
@pytest.mark.parametrize("added", [{"momentum": 0.9, "prox": 0.1, "weight_decay": 0.01}, {}])
def test_on_meta_every_tensor_of_training_and_testing_is_on_the_device(
    build: Callable[[], nn.Module], shape: tuple[int, ...], added: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(tensor: Tensor) -> np.ndarray:
        assert tensor.device.type == "meta"
        return np.zeros(tensor.shape, np.float32)

    monkeypatch.setattr(sgd, "fetch", fetch)
    rows = np.ones((10, *shape), np.uint8 if build is cnn else np.float32)
    samples = Samples(rows, np.arange(10) % 3, classes=3)
    config = TrainConfig(lr=0.1, epochs=1, batch=4, **added)
    start = TorchLearner(build, config).start(0)
    learner = TorchLearner(build, config, device="meta")
    assert learner.clients_at_once == 1
    assert learner.train(start, samples, 0).shape == start.shape
    assert learner.predict_proba(start, samples.x).shape == (10, 3)
    assert learner.described == "meta"


def test_devices_are_found_or_named(monkeypatch: pytest.MonkeyPatch) -> None:
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match=r"\(got 'cuda:1'\); torch .* has .*cpu"):
            find_device("cuda:1")
    monkeypatch.setattr(devices, "known_devices", lambda: ["cuda:0", "cuda:1", "cpu"])
    assert [find_device(name) for name in ("auto", "cuda", "cuda:1", "cpu")] == ["cuda:0", "cuda:0", "cuda:1", "cpu"]
    monkeypatch.setattr(devices, "known_devices", lambda: ["cpu"])
    assert TorchLearner(mlp).on("auto").device == "cpu"


def test_an_accelerator_has_one_worker_unless_told_otherwise() -> None:
    learner = TorchLearner(mlp, device="fake")
    assert count_workers(learner, make_config({}).run) == 1
    assert count_workers(learner, make_config({"run": {"workers": 3}}).run) == 3


@pytest.mark.parametrize("device", ["gpu", "cuda:", "", ["cuda:0"]])
def test_a_name_that_is_no_device_is_refused(device: object) -> None:
    with pytest.raises(ConfigError, match=r"run\.device"):
        make_config({"run": {"device": device}})


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


ALL = [Kernels(last, onednn) for last in (False, True) for onednn in (False, True)]


def after_a_step(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    monkeypatch.setattr(stack, "find_kernels", lambda: kernels)
    torch.manual_seed(0)
    flat = FlatModule(two_convolutions(channels=1, side=8, kernel=3, hidden=12, outputs=3))
    x, y = torch.rand(5, 8, 8, 1).permute(0, 3, 1, 2), torch.tensor([0, 1, 2, 1, 0])
    with torch.no_grad():
        flat.stack.backward(flat.stack.forward(x), y, 0.2, 0.5)
    return flat.values.clone()


@pytest.mark.parametrize("kernels", ALL)
def test_all_kernels_take_the_same_step(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = after_a_step(FIRST, monkeypatch)
    np.testing.assert_allclose(after_a_step(kernels, monkeypatch), expected, rtol=1e-4, atol=1e-6)


def test_what_is_not_in_the_table_runs_as_ever() -> None:
    assert {find_kernels(name) for name in ("AVX2", "DEFAULT", "SVE256")} == {FIRST}
    assert find_kernels("AVX512") == BY_CAPABILITY["AVX512"]
    assert find_kernels() == find_kernels(torch.backends.cpu.get_cpu_capability())


def test_without_onednn_torch_multiplies(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = nn.Linear(4, 3), torch.rand(5, 4)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    with torch.no_grad():
        outputs = dense_forward(BY_CAPABILITY["AVX512"])(x, layer.weight, layer.bias)
        assert torch.equal(outputs, torch.addmm(layer.bias, x, layer.weight.t()))


def test_a_run_is_not_resumed_with_other_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = make_config({"task": {"data": "digits"}, "recipe": {"name": "fedavg"}})
    make_folder(tmp_path / "run", config, ["a"], part_to_json(make_recipe(config.recipe)))
    with open_ledger(tmp_path / "run") as ledger:
        assert ledger.meta()[KERNELS] == torch.backends.cpu.get_cpu_capability()
    assert config_to_resume(tmp_path / "run", None).recipe == config.recipe
    monkeypatch.setattr(run_folder, "kernels", lambda: "another set")
    with pytest.raises(FolderError, match=r"kernels for .* this machine's are for another set"):
        config_to_resume(tmp_path / "run", None)
