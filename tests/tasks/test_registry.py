"""The table of tasks, and tasks of one's own."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from fedmerit.config.schema import TaskConfig
from fedmerit.core.seeds import generator
from fedmerit.errors import ConfigError, DataError, UnknownName
from fedmerit.tasks.datasets.digits import read_digits
from fedmerit.tasks.registry import TaskSpec, find_task
from fedmerit.tasks.source import need


def test_unknown_task_lists_the_valid_ones() -> None:
    with pytest.raises(UnknownName, match=r"unknown task 'minst' \(did you mean 'mnist'\?\); valid: adult, celeba"):
        find_task("minst")


def test_a_task_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_task_module.py").write_text(
        "from fedmerit.tasks.registry import find_task\n"
        "from fedmerit.tasks.registry import TaskSpec\n"
        "MINE = TaskSpec('mine', 'digits again', find_task('digits').load, ('digits-mlp',))\n"
        "number = 3\n"
    )
    (tmp_path / "my_broken_module.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    mine = find_task("my_task_module:MINE")
    assert isinstance(mine, TaskSpec)
    assert len(mine.load(TaskConfig(clients=3), 0).names) == 3
    for name, message in {
        "my_task_module:number": r"must be a fedmerit.TaskSpec \(got int",
        "my_task_module:none": "has no attribute 'none'",
        "my_absent_module:x": "No module named 'my_absent_module'; is its folder on PYTHONPATH",
        "my_broken_module:x": "importing my_broken_module failed: ZeroDivisionError",
        "my_task_module:": "must be written as module:attribute",
        ":x": "must be written as module:attribute",
    }.items():
        with pytest.raises(ConfigError, match=message):
            find_task(name)


HEAVY = {"torch", "pandas", "sklearn", "PIL", "pyarrow", "flwr"}


def modules_after(code: str) -> set[str]:
    """What a new process has imported after the code."""
    code = f"import sys\n{code}\nprint(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split())


def test_the_table_imports_no_data_library_and_no_data_set() -> None:
    modules = modules_after("import fedmerit.tasks.registry")
    assert not HEAVY & modules
    assert not [name for name in modules if name.startswith("fedmerit.tasks.datasets")]


@pytest.mark.parametrize("partition", ["iid", "shards", "dirichlet"])
def test_loading_digits_imports_digits_alone(partition: str) -> None:
    settings = f"TaskConfig(data='digits', partition={partition!r}, validation=0.1)"
    modules = modules_after(
        "from fedmerit.config.schema import TaskConfig\nfrom fedmerit.tasks.registry import make_federation\n"
        f"make_federation({settings}, 0)"
    )
    assert not HEAVY & modules
    rooms = ("fedmerit.tasks.datasets.", "fedmerit.tasks.formats.")
    assert [name for name in modules if name.startswith(rooms)] == ["fedmerit.tasks.datasets.digits"]


def test_missing_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("sklearn", "pyarrow"):
        monkeypatch.setitem(sys.modules, library, None)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"needs sklearn.*install the extra `data`"):
        find_task("digits").load(TaskConfig(), 0)
    with pytest.raises(DataError, match=r"needs pyarrow.*install the extra `data`"):
        need("pyarrow")


def test_digits_are_those_of_scikit_learn() -> None:
    bunch = load_digits()
    train, test = read_digits()
    ours = np.concatenate([train.x, test.x])[np.argsort(generator(0, "digits split").permutation(1797))]
    assert np.array_equal(ours[..., 0], np.rint(bunch.images * 255 / 16))
    labels = np.concatenate([train.y, test.y])[np.argsort(generator(0, "digits split").permutation(1797))]
    assert np.array_equal(labels, bunch.target)


def test_digits_are_split_alike_for_every_seed() -> None:
    one, two = (find_task("digits").load(TaskConfig(), seed) for seed in (1, 2))
    assert np.array_equal(one.test.x, two.test.x)
    assert not np.array_equal(one.train.x, two.train.x)
    by_content = [np.sort(federation.train.x.reshape(1438, -1), axis=0) for federation in (one, two)]
    assert np.array_equal(*by_content)


@pytest.mark.parametrize("task", ["digits", "fashion-mnist"])
def test_natural_names_the_tasks_that_have_ids(task: str) -> None:
    with pytest.raises(ConfigError, match="use one of the tasks mnist, celeba, femnist"):
        find_task(task).load(TaskConfig(partition="natural"), 0)
