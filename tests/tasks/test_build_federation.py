"""From raw rows to a federation: every client's rows side by side, nothing parted or repeated."""

from __future__ import annotations

import numpy as np
import pytest

from fedmerit.config import TaskConfig
from fedmerit.errors import ConfigError, DataError
from fedmerit.tasks.build import build
from fedmerit.tasks.federation import Federation
from fedmerit.tasks.kind import MADE, TaskKind
from fedmerit.tasks.raw import Ids, Raw


def never(config: TaskConfig, seed: int) -> Federation:
    raise AssertionError("build does not load")


KIND = TaskKind("mine", "numbered rows", never, ("any",), partitions=(*MADE, "natural"), clients=7)


def numbered(rows: int, first: int = 0) -> Raw:
    """Rows that say their number everywhere, so that a mix-up shows."""
    number = np.arange(first, first + rows)
    return Raw(
        number.astype(np.float32).reshape(rows, 1),
        number % 5,
        5,
        {"odd": (number % 2).astype(np.uint8)},
        Ids("owner", number % 6),
    )


SETTINGS = [
    {"partition": "iid"},
    {"partition": "shards", "test": "matched"},
    {"partition": "dirichlet", "alpha": 2.0},
    {"partition": "label-groups", "groups": ((0, 1), (2, 3, 4)), "test": "matched"},
    {"partition": "natural", "test": "matched"},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: settings["partition"])
@pytest.mark.parametrize("has_test", [True, False])
def test_columns_stay_together(settings: dict[str, object], has_test: bool) -> None:
    config = TaskConfig.model_validate(settings)
    federation = build(numbered(210), numbered(60, 1000) if has_test else None, config, KIND, 3)
    assert len(federation.names) == (6 if config.partition == "natural" else 7)
    for split in (federation.train, federation.test):
        number = split.x[:, 0].astype(int)
        assert len(set(number.tolist())) == len(number)
        assert np.array_equal(split.y, number % 5)
        assert np.array_equal(split.attributes["odd"], number % 2)
        assert split.offsets[0] == 0
        assert split.offsets[-1] == len(split.y)
        assert len(split.offsets) == len(federation.names) + 1
    train, test = (set(split.x[:, 0].tolist()) for split in (federation.train, federation.test))
    assert not train & test
    again = build(numbered(210), numbered(60, 1000) if has_test else None, config, KIND, 3)
    assert np.array_equal(federation.train.x, again.train.x)
    assert np.array_equal(federation.test.x, again.test.x)


def test_client_samples_are_its_own() -> None:
    federation = build(numbered(60), None, TaskConfig(partition="natural"), KIND, 0)
    assert federation.names[2] == "owner 2"
    assert federation.samples(2).x[:, 0].tolist() == [14, 20, 26, 32, 38, 44, 50, 56]
    assert federation.test.x[federation.test.rows(2), 0].tolist() == [2, 8]


def test_clients_as_set_before_the_tasks_own_number() -> None:
    assert len(build(numbered(60), numbered(9), TaskConfig(clients=4), KIND, 0).names) == 4
    assert len(build(numbered(60), numbered(9), TaskConfig(clients=2, partition="natural"), KIND, 0).names) == 2


def test_empty_test_sets_are_allowed() -> None:
    federation = build(numbered(60), numbered(3), TaskConfig(), KIND, 0)
    assert federation.test.sizes.tolist() == [1, 1, 1, 0, 0, 0, 0]


def test_partition_that_the_task_does_not_support() -> None:
    kind = TaskKind("mine", "", never, ("any",), partitions=("natural",))
    with pytest.raises(ConfigError, match=r"task 'mine' cannot be spread by partition 'iid'; valid: natural"):
        build(numbered(60), None, TaskConfig(), kind, 0)


def test_raw_columns_must_be_of_one_length() -> None:
    with pytest.raises(DataError, match="3 rows, 2 labels"):
        Raw(np.zeros((3, 1)), np.zeros(2, np.int64), 2)
    with pytest.raises(DataError, match="3 rows, 4 writer ids"):
        Raw(np.zeros((3, 1)), np.zeros(3, np.int64), 2, ids=Ids("writer", np.zeros(4, np.int64)))
    with pytest.raises(DataError, match="at least one row"):
        Raw(np.zeros((0, 1)), np.zeros(0, np.int64), 2)
