"""The model home: torch's own names on disk, a module of one's own, predictions, old files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import CommandLine, one_line, small_task
from safetensors.torch import load_file
from torch import nn

from fedmerit import Federation, Run, Split, Task, TorchLearner, UserError, fedavg, federate, run_config
from fedmerit.config.schema import make_config
from fedmerit.learn.models import find_model
from fedmerit.store.model_files import read_model, read_tensors, write_model

DIGITS = {"task": {"clients": 4}, "run": {"rounds": 2, "fraction": 1.0, "workers": 1}}


class Odd(nn.Module):
    """Everything that a vector of parameters could lose: frozen, tied, counted, and not persisted."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.first, self.second = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
        self.second.weight = self.first.weight
        self.out = nn.Linear(3, 2)
        self.out.bias.requires_grad_(False)
        self.scale: torch.Tensor
        self.register_buffer("scale", torch.tensor([1.0, 2.0, 3.0]), persistent=False)

    def forward(self, x: torch.Tensor) -> Any:
        return self.out(self.second(torch.relu(self.first(self.norm(x)))) * self.scale)


def odd_task() -> Task:
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 3)).astype(np.float32)
    rows = Split(x, (x[:, 0] > 0).astype(np.int64), np.array([0, 20, 40, 60]))
    return Task(Federation(("a", "b", "c"), rows, rows, 2), TorchLearner(Odd))


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits") / "run"
    run_config(make_config(DIGITS), folder)
    return folder


def test_plain_torch_loads_the_file_and_predicts_the_same(digits: Path):
    module = find_model("digits-mlp")()
    module.load_state_dict(load_file(digits / "model.safetensors"))
    run, x = Run.load(digits), np.random.default_rng(1).random((50, 8, 8, 1), dtype=np.float32)
    with torch.inference_mode():
        plain = module.eval()(torch.from_numpy(x).permute(0, 3, 1, 2)).argmax(dim=1).numpy()
    assert (run.estimator().predict(x) == plain).all()
    assert set(run.state_dict()) == set(module.state_dict())
    assert all((run.state_dict()[name] == value).all() for name, value in module.state_dict().items())


def test_a_module_of_any_kind_comes_back_whole(tmp_path: Path):
    run = federate(odd_task(), fedavg(), rounds=2, fraction=1.0)
    module, state = run.module(), run.state_dict()
    assert "scale" not in state
    assert state["second.weight"].equal(state["first.weight"])
    assert state["norm.num_batches_tracked"].dtype == torch.int64
    x = np.random.default_rng(2).normal(size=(30, 3))
    with torch.inference_mode():
        assert (
            module(torch.from_numpy(x.astype(np.float32))).argmax(dim=1).numpy() == run.estimator().predict(x)
        ).all()
    named = TorchLearner(Odd).name_tensors(run.model)
    assert named.beside == ()
    write_model(tmp_path / "odd.safetensors", run.model, 2, named=named)
    found = read_model(tmp_path / "odd.safetensors")
    assert found[0].tobytes() == run.model.tobytes()
    assert found[1] == 2
    assert "scale" not in (read_tensors(tmp_path / "odd.safetensors") or {})


def test_an_altered_file_of_names_is_noticed(digits: Path, tmp_path: Path):
    content = bytearray((digits / "model.safetensors").read_bytes())
    content[-3] ^= 1
    (tmp_path / "model.safetensors").write_bytes(content)
    assert read_model(tmp_path / "model.safetensors") is None
    assert read_tensors(tmp_path / "model.safetensors") is None


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((2, 7)), r"does not accept rows of shape \(7,\)"),
        (np.zeros(64), "inputs must have shape"),
        (np.full((1, 64), np.nan), "row 0 of the rows to predict contains NaN"),
        ([["a"] * 64], "inputs must be numbers"),
    ],
)
def test_rows_that_do_not_fit_are_refused_in_one_line(digits: Path, x: Any, message: str):
    with pytest.raises(UserError, match=message):
        Run.load(digits).estimator().predict(x)


def test_a_learner_of_ones_own_predicts_and_has_no_names():
    task = small_task()
    run = federate(task, fedavg(), rounds=1, fraction=1.0)
    assert len(run.estimator().predict(task.federation.test.x)) == len(task.federation.test.y)
    with pytest.raises(UserError, match="does not name the tensors"):
        run.state_dict()
    with pytest.raises(UserError, match="needs a TorchLearner"):
        run.module()
    with pytest.raises(UserError, match="has no method `predict_proba`"):
        run.estimator().predict_proba(task.federation.test.x)


def test_personal_models_are_asked_for_by_client(tmp_path: Path):
    config = make_config(DIGITS | {"recipe": {"name": "m2f"}, "task": {"clients": 4, "validation": 0.2}})
    run = run_config(config, tmp_path / "run")
    x = np.zeros((3, 64), dtype=np.float32)
    with pytest.raises(UserError, match="each client of this run has a personal model"):
        run.estimator().predict(x)
    assert len(run.estimator(client=2).predict(x)) == 3
    assert run.state_dict(client="3").keys() == find_model("digits-mlp")().state_dict().keys()
    with pytest.raises(UserError, match="has no personal model in this run"):
        federate(odd_task(), fedavg(), rounds=1, fraction=1.0).estimator(client=0)


def test_another_module_is_refused(digits: Path):
    with pytest.raises(UserError, match="differs from the one that the run trained"):
        Run.load(digits).module(lambda: nn.Linear(64, 10))


def rows_file(path: Path) -> Path:
    values = np.random.default_rng(3).random((4, 64)).round(3)
    names = ";".join(f"pixel {i}" for i in range(64))
    lines = [f"{i};" + ";".join(str(value).replace(".", ",") for value in row) for i, row in enumerate(values)]
    path.write_text("\n".join([f"id;{names}", *lines]))
    return path


def test_the_command_predicts_what_python_does(cli: CommandLine, digits: Path, tmp_path: Path):
    file, x = rows_file(tmp_path / "rows.csv"), np.random.default_rng(3).random((4, 64)).round(3)
    expected = Run.load(digits).estimator().predict(x).tolist()
    answer = cli("predict", digits, file, "--drop", "id")
    assert answer.out.splitlines() == ["row,predicted", *(f"{i + 1},{label}" for i, label in enumerate(expected))]
    np.savez(tmp_path / "rows.npz", x=x)
    found = cli("predict", digits, tmp_path / "rows.npz", "--proba", "--json").json
    assert found["predicted"] == expected
    assert np.argmax(found["probabilities"], axis=1).tolist() == expected
    assert cli("predict", digits, file, "--drop", "id", "--out", tmp_path / "out.csv").code == 0
    assert (tmp_path / "out.csv").read_text() == answer.out
    assert "--force" in one_line(cli("predict", digits, file, "--drop", "id", "--out", tmp_path / "out.csv"))
    assert cli("predict", digits, file, "--drop", "id", "--out", tmp_path / "out.csv", "--force").code == 0


def test_parquet_is_read_as_csv_is(cli: CommandLine, digits: Path, tmp_path: Path):
    pandas = pytest.importorskip("pandas")
    x = np.random.default_rng(3).random((4, 64))
    frame = pandas.DataFrame({"who": list("abcd"), **{f"p{i}": x[:, i] for i in range(64)}})
    frame.to_parquet(tmp_path / "rows.parquet")
    found = cli("predict", digits, tmp_path / "rows.parquet", "--drop", "who", "--json").json
    assert found["predicted"] == Run.load(digits).estimator().predict(x).tolist()
    assert "--drop who?" in one_line(cli("predict", digits, tmp_path / "rows.parquet"))


@pytest.mark.parametrize(
    ("options", "message"),
    [(["--drop", "ids"], "no column 'ids' to drop (did you mean 'id'?)"), ([], "does not accept rows of shape (65,)")],
)
def test_mistakes_of_the_command_are_one_line(
    cli: CommandLine, digits: Path, tmp_path: Path, options: list[str], message: str
):
    assert message in one_line(cli("predict", digits, rows_file(tmp_path / "rows.csv"), *options))
