"""From raw rows to a federation: every client's rows side by side, nothing parted or repeated."""

from dataclasses import replace

import numpy as np
import pytest

from fedmerit.config.schema import TaskConfig, make_config
from fedmerit.errors import ConfigError, DataError
from fedmerit.tasks.build import build_federation
from fedmerit.tasks.federation import Federation, Ids, Raw
from fedmerit.tasks.registry import MADE, TaskSpec


def never(config: TaskConfig, seed: int) -> Federation:
    raise AssertionError("build does not load")


MINE = TaskSpec("mine", "numbered rows", never, ("any",), partitions=(*MADE, "natural"), clients=7)


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
    federation = build_federation(numbered(210), numbered(60, 1000) if has_test else None, config, MINE, 3)
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
    again = build_federation(numbered(210), numbered(60, 1000) if has_test else None, config, MINE, 3)
    assert np.array_equal(federation.train.x, again.train.x)
    assert np.array_equal(federation.test.x, again.test.x)


def test_client_samples_are_its_own() -> None:
    federation = build_federation(numbered(60), None, TaskConfig(partition="natural"), MINE, 0)
    assert federation.names[2] == "owner 2"
    assert federation.samples(2).x[:, 0].tolist() == [14, 20, 26, 32, 38, 44, 50, 56]
    assert federation.test.x[federation.test.rows(2), 0].tolist() == [2, 8]


def test_clients_as_set_before_the_tasks_own_number() -> None:
    assert len(build_federation(numbered(60), numbered(9), TaskConfig(clients=4), MINE, 0).names) == 4
    assert (
        len(build_federation(numbered(60), numbered(9), TaskConfig(clients=2, partition="natural"), MINE, 0).names) == 2
    )


def test_empty_test_sets_are_allowed() -> None:
    federation = build_federation(numbered(60), numbered(3), TaskConfig(), MINE, 0)
    assert federation.test.sizes.tolist() == [1, 1, 1, 0, 0, 0, 0]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: settings["partition"])
@pytest.mark.parametrize("has_test", [True, False])
@pytest.mark.parametrize("share", [0.1, 0.25, 0.999])
def test_validation_rows_come_from_each_clients_training_rows(
    settings: dict[str, object], has_test: bool, share: float
) -> None:
    without, kept = (
        build_federation(
            numbered(210),
            numbered(60, 1000) if has_test else None,
            TaskConfig.model_validate(settings | {"validation": part}),
            MINE,
            3,
        )
        for part in (0.0, share)
    )
    assert np.array_equal(without.test.x, kept.test.x)
    for client, size in enumerate(without.train.sizes.tolist()):
        rows = kept.validation.rows(client)
        held, trained = kept.validation.x[rows, 0].tolist(), kept.samples(client).x[:, 0].tolist()
        assert len(held) == min(round(share * size), size - 1)
        assert len(trained) >= 1
        assert sorted(held + trained) == without.samples(client).x[:, 0].tolist()
        assert np.array_equal(kept.validation.y[rows], np.array(held) % 5)
        assert np.array_equal(kept.validation.attributes["odd"][rows], np.array(held) % 2)


def test_validation_rows_are_random_and_repeatable() -> None:
    config = TaskConfig(partition="natural", validation=0.3)
    one, again, other = (build_federation(numbered(210), None, config, MINE, seed).validation.x for seed in (1, 1, 2))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_without_validation_every_client_has_an_empty_share() -> None:
    built = build_federation(numbered(60), None, TaskConfig(), MINE, 0)
    by_hand = Federation(built.names, built.train, built.test, built.classes)
    for federation in (built, by_hand):
        assert federation.validation.sizes.tolist() == [0] * 7
        assert federation.validation.x.shape == (0, 1)
        assert tuple(federation.validation.attributes) == ("odd",)


def test_validation_that_keeps_no_row_is_an_error() -> None:
    with pytest.raises(
        DataError, match=r"task.validation = 0.05 gives no client a validation row: the largest of 7 has 7"
    ):
        build_federation(numbered(60), None, TaskConfig(validation=0.05), MINE, 0)
    with pytest.raises(DataError, match="has 1 training rows"):
        build_federation(numbered(7), numbered(7), TaskConfig(validation=0.9), MINE, 0)


@pytest.mark.parametrize("value", [-0.1, 1, 1.01, float("nan"), "0.5", True])
def test_shares_out_of_range(value: object) -> None:
    with pytest.raises(ConfigError, match=r"task.validation: "):
        make_config({"task": {"validation": value}})


def test_rows_that_the_data_keeps_for_testing() -> None:
    raw = replace(numbered(60), for_test=np.arange(60) % 4 == 1)
    natural = build_federation(raw, None, TaskConfig(partition="natural"), MINE, 0)
    assert (natural.test.x[:, 0] % 4 == 1).all()
    assert len(natural.test.y) == 15
    for settings in ({"partition": "natural", "test": "matched"}, {"partition": "iid"}):
        anew = build_federation(raw, None, TaskConfig.model_validate(settings), MINE, 0)
        assert len(set((anew.test.x[:, 0] % 4).tolist())) > 1, "only natural slices follow the given split"


def test_client_that_has_only_test_rows() -> None:
    raw = replace(numbered(60), for_test=np.arange(60) % 6 == 2)
    with pytest.raises(DataError, match="all 10 rows of owner 2 are test rows"):
        build_federation(raw, None, TaskConfig(partition="natural"), MINE, 0)


def test_partition_that_the_task_does_not_support() -> None:
    kind = TaskSpec("mine", "", never, ("any",), partitions=("natural",))
    with pytest.raises(ConfigError, match=r"task 'mine' does not support partition 'iid'; use one of: natural"):
        build_federation(numbered(60), None, TaskConfig(partition="iid"), kind, 0)


def test_raw_columns_must_be_of_one_length() -> None:
    with pytest.raises(DataError, match="3 rows, 2 labels"):
        Raw(np.zeros((3, 1)), np.zeros(2, np.int64), 2)
    with pytest.raises(DataError, match="3 rows, 4 writer ids"):
        Raw(np.zeros((3, 1)), np.zeros(3, np.int64), 2, ids=Ids("writer", np.zeros(4, np.int64)))
    with pytest.raises(DataError, match="3 rows, 2 marks of test rows"):
        Raw(np.zeros((3, 1)), np.zeros(3, np.int64), 2, for_test=np.zeros(2, np.bool_))
    with pytest.raises(DataError, match="at least one row"):
        Raw(np.zeros((0, 1)), np.zeros(0, np.int64), 2)
