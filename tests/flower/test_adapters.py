"""Adapters on a frozen base, made by hand and by PEFT: bytes, the hash of the base, half precision."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fleets import run_rounds
from flwr.app import Array, ArrayRecord, Context
from helpers import stopped
from low_rank import CLASSES, CLIENTS, FEATURES, RANK, VALUES, X, Y, another_base, task
from safetensors import safe_open
from small_app import everybody, make_app
from torch import nn

from fedmerit import Federation, Run, Task, TorchLearner, fedavg, federate, resume, run_config, run_on
from fedmerit.config.privacy import make_collect
from fedmerit.config.schema import TrainConfig, make_config
from fedmerit.core.learner import base_hash
from fedmerit.core.types import Download
from fedmerit.errors import ConfigError, FolderError, RunFailed, UserError
from fedmerit.fleet.local import LocalFleet
from fedmerit.flower import GridFleet, InProcessGrid, Merit, make_client_app
from fedmerit.tasks.registry import ClientHalf, TaskSpec

SPEC = TaskSpec("adapted", "rows for adapters", load=lambda config, seed: task().federation, models=("low-rank",))
SPEC = replace(SPEC, learner=lambda model, train: task().learner)
OTHER = replace(SPEC, learner=lambda model, train: task(another_base).learner)


def fleet_of(made: Task, wire: str = "float32", odd: Task | None = None) -> GridFleet:
    """The task on an in-process grid; the last client may have another one."""

    def half(context: Context) -> ClientHalf:
        place = int(context.node_config["partition-id"])
        return (odd if odd and place == CLIENTS - 1 else made).client(place)

    return GridFleet(InProcessGrid(make_client_app(half), CLIENTS), made.server(), timeout=5.0, wire=wire)


def settings(**run: Any) -> Any:
    run = {"rounds": 3, "workers": 1, "fraction": 1.0, "measure": "accuracy", **run}
    return make_config({"task": {"data": f"{__name__}:SPEC"}, "run": run})


@pytest.mark.parametrize("facts", ["together", "first"])
@pytest.mark.parametrize("wire", ["float32", "float16"])
def test_both_fleets_send_adapters_only_and_give_the_same_bits(wire: str, facts: str, tmp_path: Path) -> None:
    config, flower = settings(wire=wire, facts=facts), fleet_of(task(), wire)
    flower.meet(CLIENTS, patience=1.0)
    runs = run_config(config, tmp_path / "local"), run_on(flower, config, tmp_path / "flower")
    assert len(runs[0].model) == VALUES
    assert runs[0].model.tobytes() == runs[1].model.tobytes()
    sent = CLIENTS * VALUES * 4, CLIENTS * VALUES * np.dtype(wire).itemsize
    assert [(row["bytes_down"], row["bytes_up"]) for run in runs for row in run.ledger.rounds()] == [sent] * 6


def test_masked_updates_are_integers_and_have_no_wire() -> None:
    with pytest.raises(ConfigError, match="clients send integers; remove run"):
        make_collect(make_config({"run": {"wire": "float16"}, "privacy": {"masked": True}}), fedavg())


def test_float16_rounds_each_update_and_adds_up_in_float32() -> None:
    made, ends = task(), dict[str, np.ndarray]()
    for wire in ("float32", "float16"):
        with LocalFleet(made, wire=wire) as fleet:
            replies = fleet.train(1, _downloads(made), (), 1)
            ends[wire] = np.stack([replies.updates.row(place) for place in range(CLIENTS)])
    assert ends["float16"].dtype == np.float32
    assert (ends["float16"] == ends["float32"].astype(np.float16)).all()
    assert (ends["float16"] != ends["float32"]).any()


def _downloads(made: Task) -> dict[int, Any]:
    model = made.learner.start(0)
    return {client: Download(model) for client in range(CLIENTS)}


def test_the_model_file_names_its_base_and_another_base_is_refused(tmp_path: Path) -> None:
    made = task()
    run = federate(made, fedavg(), rounds=2, out=tmp_path / "run")
    with safe_open(tmp_path / "run" / "model.safetensors", framework="numpy") as file:
        assert set(file.keys()) == {"0.scale", "0.mask", "1.a", "1.b"}
        assert base_hash(made.learner) in file.metadata()["fedmerit"]
    with torch.inference_mode():
        outputs = run.module()(torch.from_numpy(X)).argmax(dim=1)
    assert (outputs.numpy() == run.estimator().predict(X)).all()
    assert (Run.load(tmp_path / "run", made.learner).estimator().predict(X) == outputs.numpy()).all()
    wrong = "frozen parameters and constant buffers differ: the hash is "
    with pytest.raises(UserError, match=wrong):
        run.module(another_base)
    with pytest.raises(UserError, match=wrong):
        Run.load(tmp_path / "run", TorchLearner(another_base)).estimator()


def test_a_node_with_another_base_is_refused_by_name() -> None:
    fleet = fleet_of(task(), odd=task(another_base))
    with pytest.raises(RunFailed, match=r"only 3 of 4 .* site 3 has another base than the server: its frozen"):
        fleet.meet(CLIENTS, patience=0.2)


def test_a_run_is_not_resumed_on_another_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = settings()
    stopped(config, tmp_path / "run", 1)
    monkeypatch.setitem(globals(), "SPEC", OTHER)
    with pytest.raises(FolderError, match="the run cannot be resumed: its frozen"):
        resume(tmp_path / "run", config)


def test_merit_sends_what_the_app_sends() -> None:
    """An app that sends its adapter's state only: the bytes are the adapter's, in the type that the app chose."""
    start = {"a": np.zeros((RANK, FEATURES), np.float32), "b": np.zeros((FEATURES, RANK), np.float32)}

    def move(node: int, arrays: Any) -> Any:
        return {name: np.asarray(values + node, np.float16) for name, values in arrays.items()}

    app = make_app(lambda node: {"num-examples": 10}, lambda node, arrays: {"num-examples": 10, "accuracy": 0.5}, move)
    strategy = Merit(fedavg(), **everybody(CLIENTS))
    first = ArrayRecord({name: Array(values) for name, values in start.items()})
    result = strategy.start(InProcessGrid(app, CLIENTS), first, num_rounds=1)
    (record,) = strategy.records
    assert (record.bytes_down, record.bytes_up) == (CLIENTS * VALUES * 4, CLIENTS * VALUES * 2)
    assert {name: array.numpy().mean() for name, array in result.arrays.items()} == {"a": 1.5, "b": 1.5}
    assert {array.dtype for array in result.arrays.values()} == {"float32"}


def lora() -> nn.Module:
    """A GPT-2 made from a configuration, with PEFT's adapters; nothing is downloaded."""
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    size = {"vocab_size": 20, "n_positions": FEATURES, "n_embd": 16, "n_layer": 2, "n_head": 2}
    ends = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0, "num_labels": CLASSES}
    module = transformers.GPT2ForSequenceClassification(transformers.GPT2Config(**size, **ends))
    return peft.get_peft_model(module, peft.LoraConfig(r=RANK, target_modules=["c_attn"], fan_in_fan_out=True))  # type: ignore[no-any-return]


def tokens() -> Task:
    pytest.importorskip("peft")
    x, made = np.minimum(np.abs(X) * 6 + 1, 19).astype(np.int64), task()
    rows = np.split(np.arange(len(x)), CLIENTS)
    data = Federation.from_clients({f"site {place}": (x[own], Y[own]) for place, own in enumerate(rows)})
    return replace(made, federation=data, learner=TorchLearner(lora, TrainConfig(lr=0.3, batch=10)))


@pytest.mark.filterwarnings("ignore::FutureWarning")  # PEFT reads attributes that transformers deprecates
def test_peft_lora_on_both_fleets() -> None:
    """Needs `pip install peft` (187 MB with transformers), which is not part of the environment."""
    made = tokens()
    values = sum(parameter.numel() for parameter in lora().parameters() if parameter.requires_grad)
    flower = fleet_of(made)
    flower.meet(CLIENTS, patience=1.0)
    with LocalFleet(made) as local:
        (states, records), (others, _) = (run_rounds(fleet, fedavg(), 2) for fleet in (local, flower))
    assert len(states[-1].model) == values == 2 * RANK * (16 + 48)
    assert {record.bytes_up for record in records} == {CLIENTS * values * 4}
    assert states[-1].model.tobytes() == others[-1].model.tobytes() != states[0].model.tobytes()
    assert made.learner.predict(states[-1].model, made.federation.test.x).shape == (len(made.federation.test.y),)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_peft_adapters_through_merit() -> None:
    """The app sends PEFT's adapter state and nothing else."""
    peft, module = pytest.importorskip("peft"), lora()

    def move(node: int, arrays: Any) -> Any:
        peft.set_peft_model_state_dict(module, {name: torch.from_numpy(one.copy()) for name, one in arrays.items()})
        return {name: one.numpy() + node for name, one in peft.get_peft_model_state_dict(module).items()}

    app = make_app(lambda node: {"num-examples": 10}, lambda node, arrays: {"num-examples": 10, "accuracy": 0.5}, move)
    strategy = Merit(fedavg(), **everybody(CLIENTS))
    first = ArrayRecord(peft.get_peft_model_state_dict(module))
    sent = sum(array.numpy().nbytes for array in first.values())
    result = strategy.start(InProcessGrid(app, CLIENTS), first, num_rounds=1)
    assert (strategy.records[0].bytes_up, sent) == (CLIENTS * sent, 2 * RANK * (16 + 48) * 4)
    assert all(array.numpy() == pytest.approx(first[name].numpy() + 1.5) for name, array in result.arrays.items())
