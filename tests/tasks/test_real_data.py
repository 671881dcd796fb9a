"""The real data sets, where they are: counts as their descriptions state them."""

from __future__ import annotations

import numpy as np
from task_files import real_folder

from fedmerit.config.schema import TaskConfig
from fedmerit.tasks.registry import find_task


def test_mnist_by_writer() -> None:
    real_folder("mnist")
    federation = find_task("mnist").load(TaskConfig(partition="natural", test="matched"), 0)
    assert len(federation.names) == 539
    assert federation.names[0] == "writer 0"
    sizes = federation.train.sizes
    assert (sizes.sum(), sizes.min(), sizes.max(), np.median(sizes)) == (60000, 19, 131, 116)
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(federation.train.y).tolist() == counts
    assert federation.train.attributes["hsf4"].sum() == 29050
    students = [federation.samples(client).attributes["hsf4"].mean() for client in range(539)]
    assert sum(students) == 250, "each writer is wholly in one of the two groups"
    assert federation.test.sizes.sum() == 10000


def test_mnist_shards() -> None:
    real_folder("mnist")
    federation = find_task("mnist").load(TaskConfig(partition="shards"), 0)
    assert federation.train.sizes.tolist() == [600] * 100
    assert federation.test.sizes.tolist() == [100] * 100
    assert np.bincount(federation.test.y).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


def test_mnist_label_groups_as_in_m2f() -> None:
    real_folder("mnist")
    groups = ((1, 2, 3, 4, 5), (0, 6, 7, 8, 9))
    config = TaskConfig(partition="label-groups", groups=groups, clients=40, test="matched")
    federation = find_task("mnist").load(config, 0)
    assert federation.train.sizes[20:].sum() == 29906
    for client in range(40):
        group = set(groups[client // 20])
        assert set(federation.samples(client).y.tolist()) == group
        assert set(federation.test.y[federation.test.rows(client)].tolist()) == group


def test_mnist_two_groups() -> None:
    real_folder("mnist")
    federation = find_task("mnist-two-groups").load(TaskConfig(validation=0.1, size=(750, 1500)), 0)
    sizes = federation.train.sizes + federation.validation.sizes
    assert len(federation.names) == 40
    assert 750 <= sizes.min() < 1000
    assert 1300 < sizes.max() <= 1500
    for client in range(40):
        group = {1, 2, 3, 4, 5} if client < 20 else {0, 6, 7, 8, 9}
        assert set(federation.samples(client).y.tolist()) <= group
        assert set(federation.test.y[federation.test.rows(client)].tolist()) <= group
    assert federation.test.sizes.sum() == 10000
    assert find_task("mnist-two-groups").load(TaskConfig(), 0).train.sizes.tolist() == [1500] * 40


def test_fashion_mnist() -> None:
    real_folder("fashion-mnist")
    federation = find_task("fashion-mnist").load(TaskConfig(), 0)
    assert np.bincount(federation.train.y).tolist() == [6000] * 10
    assert np.bincount(federation.test.y).tolist() == [1000] * 10


def test_celeba() -> None:
    real_folder("celeba")
    federation = find_task("celeba").load(TaskConfig(partition="natural"), 0)
    assert len(federation.names) == 278
    sizes = federation.train.sizes + federation.test.sizes
    assert (sizes.sum(), sizes.min(), sizes.max(), np.median(sizes)) == (6155, 5, 30, 22.5)
    assert (sizes >= 10).sum() == 253
    assert len(federation.train.attributes) == 40
    shares = {
        name: np.concatenate([federation.train.attributes[name], federation.test.attributes[name]]).mean()
        for name in ("Smiling", "Male", "Young", "Blurry")
    }
    assert {name: round(share, 3) for name, share in shares.items()} == {
        "Smiling": 0.461,
        "Male": 0.398,
        "Young": 0.822,
        "Blurry": 0.059,
    }
    assert 90 < federation.train.x.mean() < 150, "pictures, not noise or blanks"
