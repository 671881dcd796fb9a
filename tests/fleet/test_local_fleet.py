"""The local fleet: the same bits for any number of workers; clients that fail are left out; blocks in memory once."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import toy

from fedmerit import DS, LD, Recipe, Run, fedavg, federate, prioritized
from fedmerit.core.types import Download
from fedmerit.errors import RunFailed
from fedmerit.fleet.blocks import Block
from fedmerit.fleet.local import LocalFleet

RECIPE = prioritized(LD, DS, normalise="max")


def run(workers: int = 1, recipe: Recipe = RECIPE, **behaviour: object) -> Run:
    return federate(toy.task(**behaviour), recipe, rounds=3, fraction=0.5, seed=4, workers=workers)


def test_bits_do_not_depend_on_the_number_of_workers_or_the_order_of_arrival() -> None:
    alone = run(1)
    for workers in (2, 4):
        together = run(workers, pause=0.05)
        assert together.model.tobytes() == alone.model.tobytes()
        assert np.array_equal(together.local_accuracy, alone.local_accuracy)
        assert [together.explain(r) for r in (1, 2, 3)] == [alone.explain(r) for r in (1, 2, 3)]


def test_bits_do_not_depend_on_where_the_updates_lie(tmp_path: Path) -> None:
    def updates(memory: int | None) -> tuple[bytes, bytes]:
        with LocalFleet(toy.task(), 2, memory, tmp_path) as fleet:
            model = fleet.server.first_model(1)
            replies = fleet.train(1, {client: Download(model) for client in range(8)}, ("samples",), 9)
            return replies.updates.norms.tobytes(), replies.updates.combine(np.linspace(0, 1, 8)).tobytes()

    assert updates(memory=None) == updates(memory=1)
    assert list(tmp_path.iterdir()) == []  # the file never had a name


@pytest.mark.parametrize("workers", [1, 2])
def test_a_client_that_raises_is_left_out_with_the_reason(workers: int) -> None:
    done = run(workers, raise_on=3, recipe=fedavg())
    left_out = [event for event in done.events() if event.kind == "left-out"]
    assert {(event.client, event.text) for event in left_out} == {(3, "ValueError: this client cannot train")}
    assert all(3 not in [row.id for row in done.explain(round)] for round in (1, 2, 3))
    assert len(done.ledger.rounds()) == 3


def test_a_client_that_keeps_killing_its_worker_is_left_out() -> None:
    done = run(2, die_on=3)
    left_out = [event for event in done.events() if event.kind == "left-out"]
    assert {(event.client, event.text) for event in left_out} == {(3, "its worker process died 3 times")}


def test_a_worker_that_dies_is_replaced_and_its_client_done_again(tmp_path: Path) -> None:
    done = run(2, die_once=tmp_path / "died")
    assert (tmp_path / "died").exists()
    assert [event for event in done.events() if event.kind == "left-out"] == []
    assert done.model.tobytes() == run(1).model.tobytes()


def test_several_models_are_tested_in_one_exchange() -> None:
    models = [np.random.default_rng(i).normal(size=toy.FEATURES).astype(np.float32) for i in range(6)]
    with LocalFleet(toy.task(), 2) as fleet, LocalFleet(toy.task(), 1) as alone:
        together = fleet.evaluate(models)
        for model, evaluation in zip(models, together, strict=True):
            assert np.array_equal(evaluation.correct, alone.evaluate([model])[0].correct)


def test_clients_can_receive_different_models() -> None:
    with LocalFleet(toy.task(), 2) as fleet:
        models = [fleet.server.first_model(seed) for seed in range(4)]
        replies = fleet.train(1, {client: Download(models[client]) for client in range(4)}, ("samples",), 9)
        for client, model in enumerate(models):
            alone = fleet.train(1, {client: Download(model)}, ("samples",), 9)
            assert alone.updates.norms[0] == replies.updates.norms[client]


def test_a_learner_that_cannot_travel_is_a_clear_failure() -> None:
    class Local(toy.Toy):
        pass

    from fedmerit import Task

    with pytest.raises(RunFailed, match="top level of a module"):
        federate(Task(toy.federation(), Local()), fedavg(), rounds=1, workers=2)


UNGUARDED = """
from fedmerit import fedavg, federate, load_task
task = load_task("digits", clients=4, model="digits-linear", seed=1)
federate(task, fedavg(), rounds=1, seed=1, workers=2)
"""


def test_a_script_that_runs_when_it_is_imported_is_told_so(tmp_path: Path):
    script = tmp_path / "unguarded.py"
    script.write_text(UNGUARDED)
    told = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=100, check=False)
    assert told.returncode == 1
    assert "RunFailed: worker processes import the script" in told.stderr.splitlines()[-1]
    assert 'if __name__ == "__main__":' in told.stderr.splitlines()[-1]


ROWS = 500_000
SMAPS = Path("/proc/self/smaps")


def resident(path: Path) -> int:
    """Bytes of a mapped file in this process's memory."""
    total, here = 0, False
    for line in SMAPS.read_text().splitlines():
        if "-" in line.split()[0]:
            here = line.endswith(str(path))
        elif here and line.startswith("Rss:"):
            total += int(line.split()[1]) * 1024
    return total


@pytest.mark.skipif(not SMAPS.exists(), reason="Linux says in /proc what is in memory")
@pytest.mark.parametrize("as_view", [False, True])
def test_a_mapped_file_is_let_go_of_once_it_is_copied(tmp_path: Path, as_view: bool) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.arange(ROWS))
    mapped = np.load(path, mmap_mode="r")
    rows = np.asarray(mapped[1:]) if as_view else mapped
    assert rows.sum() > 0
    assert resident(path) > 2**20
    block = Block.of(rows)
    assert resident(path) < 2**20
    np.testing.assert_array_equal(block.array, rows)


def test_changes_that_only_this_process_has_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.arange(ROWS))
    private = np.load(path, mmap_mode="c")
    private[7] = -1
    assert Block.of(private).array[7] == -1
    assert private[7] == -1
