"""FEMNIST by writer: the npz file, LEAF's JSON, the hub, LEAF's sampling and split, and every mistake in them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from task_files import leaf_file, real_folder, save_writers, write_leaf, writer_arrays

from fedmerit.config.schema import TaskConfig
from fedmerit.errors import ConfigError, DataError, UnknownName
from fedmerit.tasks.datasets.writers import numbered_files, sample_writers
from fedmerit.tasks.federation import Federation
from fedmerit.tasks.formats.leaf_json import Writers
from fedmerit.tasks.registry import find_task

WRITERS = {"f0424_27": 20, "f1255_13": 10, "f0007_01": 5}
"""Names out of order: clients keep the order of the file."""


def load(seed: int = 0, **settings: Any) -> Federation:
    return find_task("femnist").load(TaskConfig(**({"partition": "natural"} | settings)), seed)


def shades(federation: Federation, client: int, split: str = "train") -> list[int]:
    """The rows of a client, by the grey that numbers them."""
    part = getattr(federation, split)
    return part.x[part.rows(client), 0, 0, 0].tolist()


# ------------------------------------------------------------------------------------------------ the npz file


def test_writers_of_the_file(data: Path) -> None:
    save_writers(data, writer_arrays(WRITERS))
    federation = load()
    assert federation.names == tuple(WRITERS)
    assert federation.classes == 62
    assert federation.train.x.dtype == np.uint8
    assert federation.train.x.shape[1:] == (28, 28, 1)
    assert federation.train.sizes.tolist() == [18, 9, 4], "copies are dropped"
    assert shades(federation, 0) == list(range(18))
    assert shades(federation, 0, "test") == [18, 19], "the split of the file is kept"
    assert shades(federation, 1, "test") == [29]
    assert np.array_equal(federation.train.y, federation.train.x[:, 0, 0, 0] % 62)


def test_copies_are_dropped_wherever_they_are(data: Path) -> None:
    arrays = writer_arrays(WRITERS)
    arrays["split"][0] = 1  # one copy for testing, the other to train on
    save_writers(data, arrays)
    federation = load()
    assert shades(federation, 0) == list(range(18))
    assert shades(federation, 0, "test") == [18, 19]


def test_another_test_set_than_the_given(data: Path) -> None:
    save_writers(data, writer_arrays({"a": 200, "b": 50}))
    given_split, matched, made = load(), load(test="matched"), load(partition="iid")
    assert matched.test.sizes.tolist() == [20, 5]
    assert shades(matched, 0, "test") != shades(given_split, 0, "test")
    assert made.names == ("0", "1"), "as many clients as writers"
    assert made.test.sizes.tolist() == [13, 13], "LEAF's tenth of each client's 125 rows"


def test_some_of_the_writers(data: Path) -> None:
    save_writers(data, writer_arrays({f"w{number}": 10 for number in range(9)}))
    federation = load(clients=4)
    assert len(federation.names) == 4
    assert all(shades(federation, place)[0] == 10 * int(name[1:]) for place, name in enumerate(federation.names))


@pytest.mark.parametrize("name", ["images", "labels", "writer", "split", "duplicate", "writer_names"])
def test_file_lacks_an_array(data: Path, name: str) -> None:
    arrays = writer_arrays(WRITERS)
    del arrays[name]
    path = save_writers(data, arrays)
    with pytest.raises(DataError, match=f"missing: {name}") as caught:
        load()
    assert str(path) in str(caught.value)


def changed(name: str, change: Callable[[np.ndarray], Any]) -> dict[str, np.ndarray]:
    arrays = writer_arrays(WRITERS)
    return arrays | {name: np.asarray(change(arrays[name]))}


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("images", lambda a: a[:, :27], r"images must be bytes \(uint8\) of shape \(38, 28, 28\); got uint8 of"),
        ("images", lambda a: a[1:], r"of shape \(38, 28, 28\); got uint8 of \(37, 28, 28\)"),
        ("images", lambda a: a.astype(np.int16), r"images must be bytes \(uint8\).*got int16"),
        ("images", lambda a: a / 255.0, "images must be an array of whole numbers or text"),
        ("labels", lambda a: a[1:], r"images must be .*\(37, 28, 28\)"),
        ("labels", lambda a: a + np.uint8(40), r"labels must be 0 to 61; got 40 to \d+"),
        ("labels", lambda a: a.astype(np.int16) - 1, "labels must be 0 to 61; got -1"),
        ("labels", lambda a: a.astype(str), "labels must be whole numbers"),
        ("writer", lambda a: a[1:], r"writer must be whole numbers of shape \(38,\); got uint16 of \(37,\)"),
        ("writer", lambda a: a + np.uint16(1), "writer must be 0 to 2; got 1 to 3"),
        ("split", lambda a: a + np.uint8(1), "split must be 0 to 1; got 1 to 2"),
        ("split", lambda a: a[:, None], r"split must be whole numbers of shape \(38,\)"),
        ("duplicate", lambda a: a.astype(np.uint8), r"duplicate must be true or false of shape \(38,\); got uint8"),
        ("writer_names", lambda a: np.arange(3), "writer_names must be text"),
        ("writer_names", lambda a: ["a", "b", "a"], "writer_names must hold each name once"),
        ("duplicate", np.ones_like, "at least one row"),
        ("split", np.ones_like, "a row to train on; f0424_27 has 20, all for testing"),
    ],
)
def test_arrays_do_not_fit(data: Path, name: str, change: Callable[[np.ndarray], Any], message: str) -> None:
    save_writers(data, changed(name, change))
    with pytest.raises(DataError, match=message):
        load()


def test_no_rows_at_all(data: Path) -> None:
    arrays = writer_arrays(WRITERS)
    save_writers(data, {key: value if key == "writer_names" else value[:0] for key, value in arrays.items()})
    with pytest.raises(DataError, match="at least one row"):
        load()


def test_no_npz_at_all(data: Path) -> None:
    save_writers(data, {}).write_bytes(b"no zip")
    with pytest.raises(DataError, match=r"femnist_writers_full.npz is not a readable npz file"):
        load()


# ------------------------------------------------------------------------------------------------ LEAF's JSON


def write_all_data(folder: Path) -> None:
    write_leaf(folder / "all_data" / "all_data_0.json", leaf_file({"f2": 20, "f1": 10}))
    write_leaf(folder / "all_data" / "all_data_1.json", leaf_file({"f0": 5}, first=30))


def write_pair(folder: Path) -> None:
    write_leaf(folder / "train" / "all_data_0_train_9.json", leaf_file({"f2": 9, "f1": 4}))
    write_leaf(folder / "train" / "all_data_1_train_9.json", leaf_file({"f0": 3}, first=13))
    write_leaf(folder / "test" / "all_data_0_test_9.json", leaf_file({"f1": 0, "f2": 2}, first=100))
    write_leaf(folder / "test" / "all_data_1_test_9.json", leaf_file({"f0": 1}, first=102))


def test_all_data(data: Path) -> None:
    write_all_data(data / "femnist")
    federation = load()
    assert federation.names == ("f2", "f1", "f0"), "in the order of the files"
    assert federation.test.sizes.tolist() == [2, 1, 1], "LEAF trains on int(0.9 n)"
    for client, rows in enumerate((range(20), range(20, 30), range(30, 35))):
        assert sorted(shades(federation, client) + shades(federation, client, "test")) == list(rows)
    assert np.array_equal(federation.train.y, federation.train.x[:, 0, 0, 0] % 62)
    assert shades(federation, 0, "test") != shades(load(seed=1), 0, "test"), "drawn at random"


def test_every_byte_comes_back(data: Path) -> None:
    write_leaf(data / "femnist" / "all_data" / "a.json", leaf_file({"f0": 256}))
    federation = load()
    assert sorted(shades(federation, 0) + shades(federation, 0, "test")) == list(range(256))


def test_leafs_own_split(data: Path) -> None:
    write_pair(data / "femnist")
    federation = load()
    assert federation.names == ("f2", "f1", "f0")
    assert [shades(federation, client) for client in range(3)] == [list(range(9)), [9, 10, 11, 12], [13, 14, 15]]
    assert [shades(federation, client, "test") for client in range(3)] == [[100, 101], [], [102]]


def test_the_split_counts_before_all_data(data: Path) -> None:
    write_pair(data / "femnist")
    write_leaf(data / "femnist" / "all_data" / "a.json", leaf_file({"other": 3}))
    assert load().names == ("f2", "f1", "f0")
    assert load(source=f"leaf:{data}/femnist/all_data").names == ("other",)


def test_the_npz_file_counts_before_json_unless_leaf_is_named(data: Path) -> None:
    save_writers(data, writer_arrays(WRITERS))
    write_all_data(data / "femnist")
    assert load().names == tuple(WRITERS)
    assert load(source="leaf").names == ("f2", "f1", "f0")


@pytest.mark.parametrize("within", ["", "all_data"])
def test_a_folder_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, within: str) -> None:
    monkeypatch.delenv("FEDMERIT_DATA", raising=False)
    write_leaf(tmp_path / "leaf" / within / "a.json", leaf_file({"f0": 12}))
    assert load(source=f"leaf:{tmp_path}/leaf").train.sizes.tolist() == [10]


def with_user(**change: Any) -> dict[str, Any]:
    """A good file but for one user's rows."""
    content = leaf_file({"f0": 2, "f1": 3})
    content["user_data"]["f1"] |= change
    return content


def without(*path: str) -> dict[str, Any]:
    content = node = leaf_file({"f0": 2, "f1": 3})
    for key in path[:-1]:
        node = node[key]
    del node[path[-1]]
    return content


GOOD = leaf_file({"f0": 2, "f1": 3})
BLACK = [0.0] * 784
BAD_FILES: list[tuple[Any, str]] = [
    ("", "is not JSON, or is cut off"),
    (json.dumps(GOOD)[:-100], "is not JSON, or is cut off"),
    ("[" * 100_000, "is not JSON"),
    ("\ud800".encode("utf-8", "surrogatepass").decode("latin-1"), "is not JSON"),
    ([1, 2], "must be an object with users, num_samples, user_data; missing: users, num_samples, user_data"),
    (without("users"), "missing: users"),
    (without("num_samples"), "missing: num_samples"),
    (without("user_data"), "missing: user_data"),
    (GOOD | {"users": ["f0"]}, "users and num_samples must be equally long; got 1 and 2"),
    (GOOD | {"num_samples": [2, 3, 4]}, "got 2 and 3"),
    (GOOD | {"users": "f0"}, "users must be a list of names"),
    (GOOD | {"users": ["f0", 1]}, "users must be a list of names"),
    (GOOD | {"num_samples": 5}, "num_samples a list of numbers"),
    (GOOD | {"user_data": []}, "user_data must be an object; got list"),
    (GOOD | {"users": ["f0", "f0"]}, "user 'f1' of user_data must be in users"),
    ({**without("user_data", "f1"), "users": ["f0", "f0"], "num_samples": [2, 2]}, "user 'f0': each user .* once"),
    (GOOD | {"users": ["f0"], "num_samples": [2]}, "user 'f1' of user_data must be in users, too"),
    (without("user_data", "f1"), "user 'f1': every one of users must be in user_data"),
    (without("user_data", "f1", "x"), "user 'f1': user_data must have two lists, x and y"),
    (without("user_data", "f1", "y"), "user 'f1': user_data must have two lists, x and y"),
    (GOOD | {"user_data": {"f0": [], "f1": []}}, "user 'f0': user_data must have two lists"),
    (GOOD | {"num_samples": [2, 4]}, "user 'f1': .*num_samples says 4, there are 3 in x and 3 in y"),
    (GOOD | {"num_samples": [2, None]}, "user 'f1': .*num_samples says None"),
    (with_user(x=[BLACK] * 2), "user 'f1': .*num_samples says 3, there are 2 in x and 3 in y"),
    (with_user(y=[1, 2, 3, 4]), "user 'f1': .*there are 3 in x and 4 in y"),
    (with_user(x=[BLACK, BLACK, BLACK[1:]]), "user 'f1': image 2 must be a list of 784 pixels; got 783"),
    (with_user(x=[BLACK, 7, BLACK]), "user 'f1': image 1 must be a list of 784 pixels; got int"),
    (with_user(x=[BLACK, BLACK, [*BLACK[1:], float("nan")]]), "user 'f1': pixels must be .* from 0 to 1; got nan"),
    (with_user(x=[BLACK, BLACK, [*BLACK[1:], float("inf")]]), "user 'f1': pixels .*; got inf"),
    (with_user(x=[[255] * 784] * 3), "user 'f1': pixels must be numbers from 0 to 1; got 255"),
    (with_user(x=[[-0.1, *BLACK[1:]]] * 3), "user 'f1': pixels .*; got -0.1"),
    (with_user(x=[["0.5", *BLACK[1:]]] * 3), "user 'f1': pixels .*; some are not numbers"),
    (with_user(x=[[None, *BLACK[1:]]] * 3), "user 'f1': pixels .*; some are not numbers"),
    (with_user(x=[[[0.5], *BLACK[1:]]] * 3), "user 'f1': pixels .*; some are not numbers"),
    (with_user(x=[[10**400, *BLACK[1:]]] * 3), "user 'f1': pixels .*; some are not numbers"),
    (with_user(y=[0, 1, 62]), "user 'f1': labels must be whole numbers from 0 to 61; got 0 to 62"),
    (with_user(y=[-1, 1, 2]), "user 'f1': labels .*; got -1 to 2"),
    (with_user(y=[0, 1, 2.5]), "user 'f1': labels .*; some are not whole numbers"),
    (with_user(y=[0, 1, "2"]), "user 'f1': labels .*; some are not whole numbers"),
    (with_user(y=[0, 1, [2]]), "user 'f1': labels .*; some are not whole numbers"),
    (with_user(y=[0, 1, 10**30]), "user 'f1': labels .*; some are not whole numbers"),
    (leaf_file({"f0": 2, "f1": 0}), "user 'f1': needs at least one row to train on"),
]


@pytest.mark.parametrize(("content", "message"), BAD_FILES)
def test_bad_file_is_named(data: Path, content: Any, message: str) -> None:
    path = write_leaf(data / "femnist" / "all_data" / "all_data_3.json", content)
    with pytest.raises(DataError, match=message) as caught:
        load()
    assert str(path) in str(caught.value)
    assert "preprocess.sh" in str(caught.value)


def test_a_file_in_no_known_encoding(data: Path) -> None:
    path = write_leaf(data / "femnist" / "all_data" / "a.json", "")
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match=r"a.json is not JSON"):
        load()


def test_no_users_at_all(data: Path) -> None:
    write_leaf(data / "femnist" / "all_data" / "a.json", leaf_file({}))
    with pytest.raises(DataError, match="need at least one user"):
        load()


def test_same_user_in_two_files(data: Path) -> None:
    write_leaf(data / "femnist" / "all_data" / "a.json", leaf_file({"f0": 2, "f1": 2}))
    path = write_leaf(data / "femnist" / "all_data" / "b.json", leaf_file({"f1": 2}))
    with pytest.raises(DataError, match=r"user 'f1' is in a.json, too, and each user must be in one file") as caught:
        load()
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("part", ["train", "test"])
def test_user_of_one_part_only(data: Path, part: str) -> None:
    write_pair(data / "femnist")
    path = write_leaf(data / "femnist" / part / "more.json", leaf_file({"alone": 2}))
    with pytest.raises(DataError, match="user 'alone' must be in both train and test, and is only here") as caught:
        load()
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("part", ["train", "test"])
def test_half_a_pair(data: Path, part: str) -> None:
    write_leaf(data / "femnist" / part / "a.json", leaf_file({"f0": 2}))
    with pytest.raises(DataError, match=r"train/\*.json and test/\*.json; found only one of the two"):
        load()


def test_empty_folders(data: Path) -> None:
    neither = r"task 'femnist' found neither .*femnist_writers_full.npz nor LEAF's JSON files: all_data/\*.json"
    with pytest.raises(DataError, match=neither):
        load()
    for part in ("all_data", "train", "test"):
        (data / "femnist" / part).mkdir(parents=True)
    with pytest.raises(DataError, match=neither):
        load()
    with pytest.raises(DataError, match=r"femnist must hold LEAF's JSON files.*; found none; copy"):
        load(source="leaf")
    with pytest.raises(DataError, match=r"absent must hold LEAF's JSON files.*; found no such folder"):
        load(source=f"leaf:{data}/absent")


def test_no_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDMERIT_DATA", raising=False)
    for source in ("folder", "leaf"):
        with pytest.raises(DataError, match=r"below FEDMERIT_DATA, which is not set; set FEDMERIT_DATA to a folder"):
            load(source=source)


def test_unknown_sources() -> None:
    with pytest.raises(UnknownName, match="valid: folder, hub, hub:NAME, leaf, leaf:PATH"):
        load(source="web")
    with pytest.raises(ConfigError, match="'leaf:PATH' needs a folder"):
        load(source="leaf:")


# ------------------------------------------------------------------------------------------------ the hub


def write_hub(folder: Path, label: str, writers: list[Any], characters: list[Any], kind: Any = None) -> None:
    images = [Image.fromarray(np.full((28, 28), row, np.uint8)) for row in range(len(writers))]
    columns = {"image": images, "writer_id": writers, label: characters}
    features = {
        "image": datasets.Image(),
        "writer_id": datasets.Value("string" if isinstance(writers[0], str) else "int64"),
        label: datasets.ClassLabel(num_classes=62) if kind is None else kind,
    }
    rows = datasets.Dataset.from_dict(columns, features=datasets.Features(features))
    rows.to_parquet(folder / "train-00000-of-00001.parquet")


@pytest.mark.parametrize("label", ["character", "label"])
def test_writers_of_a_local_hub(hub: Path, label: str) -> None:
    write_hub(hub, label, ["f2"] * 20 + ["f1"] * 5 + ["f2"], [row % 62 for row in range(26)])
    federation = load(source=f"hub:{hub}")
    assert federation.names == ("f1", "f2")
    assert federation.test.sizes.tolist() == [1, 3], "no split is given: LEAF's tenth"
    assert sorted(shades(federation, 0) + shades(federation, 0, "test")) == list(range(20, 25))
    assert np.array_equal(federation.train.y, federation.train.x[:, 3, 3, 0] % 62)


def test_hub_writers_may_be_numbers(hub: Path) -> None:
    write_hub(hub, "label", [12] * 3 + [7] * 3, [0] * 6)
    assert load(source=f"hub:{hub}").names == ("12", "7")


@pytest.mark.parametrize(
    ("label", "writers", "characters", "message"),
    [
        ("letter", ["f0"], [1], "must have the column character or label; got image, writer_id, letter"),
        ("character", ["f0"], [62], "labels of .* must be 0 to 61; got 62 to 62"),
        ("character", ["f0", None], [1, 2], "column 'writer_id' of .* must hold text or whole numbers in every row"),
    ],
)
def test_bad_hub(hub: Path, label: str, writers: list[Any], characters: list[Any], message: str) -> None:
    write_hub(hub, label, writers, characters, datasets.Value("int64"))
    with pytest.raises(DataError, match=message):
        load(source=f"hub:{hub}")


def test_hub_without_writers(hub: Path) -> None:
    rows = {"image": [Image.new("L", (28, 28))], "label": [1]}
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    datasets.Dataset.from_dict(rows, features=features).to_parquet(hub / "train-00000-of-00001.parquet")
    with pytest.raises(DataError, match="must have the columns writer_id; got image, label"):
        load(source=f"hub:{hub}")


# ------------------------------------------------------------------------------------------------ sampling


def numbered(sizes: list[int], files: list[int], tests: int | None = None) -> Writers:
    """Writers of these sizes in these files; every `tests`-th row is for testing, but never a writer's first."""
    writer = np.repeat(np.arange(len(sizes)), sizes)
    first = np.diff(writer, prepend=-1) > 0
    row = np.arange(len(writer))
    return Writers(
        x=row.astype(np.uint8),
        y=row,
        writer=writer,
        names=tuple(f"w{place}" for place in range(len(sizes))),
        file=np.array(files, np.int64),
        for_test=None if tests is None else (row % tests == 0) & ~first,
    )


writers_in_files = st.lists(st.tuples(st.integers(1, 30), st.integers(0, 2)), min_size=1, max_size=20)


@given(
    drawn=writers_in_files,
    share=st.floats(0.05, 1),
    tests=st.sampled_from([None, 1, 3]),
    seed=st.integers(0, 999),
)
def test_sampling_takes_whole_writers_up_to_the_share(
    drawn: list[tuple[int, int]], share: float, tests: int | None, seed: int
) -> None:
    sizes, files = [size for size, _ in drawn], [file for _, file in drawn]
    data = numbered(sizes, files, tests)
    wanted = {file: int(share * sum(size for size, place in drawn if place == file)) for file in set(files)}
    if not any(wanted.values()):
        with pytest.raises(DataError, match=r"takes no row of any file: .*; raise task.sample"):
            sample_writers(data, share, seed)
        return
    some = sample_writers(data, share, seed)
    assert (np.diff(some.y) > 0).all(), "rows stay in file order, none twice"
    assert np.array_equal(some.writer, data.writer[some.y]), "rows stay with their writers"
    for file, count in wanted.items():
        in_file = data.file[some.writer] == file
        assert in_file.sum() == count
        kept = np.bincount(some.writer[in_file], minlength=len(sizes))
        assert ((kept > 0) & (kept < sizes)).sum() <= 1, "one writer of a file is cut at most"
    if some.for_test is not None:
        to_train = some.writer[~some.for_test]
        assert set(to_train.tolist()) == set(some.writer.tolist()), "everybody has a row to train on"
    assert np.array_equal(sample_writers(data, share, seed).y, some.y)


def test_all_of_it_is_left_as_it_is() -> None:
    data = numbered([3, 4], [0, 1])
    assert sample_writers(data, 1.0, 0) is data


def test_a_tenth(data: Path) -> None:
    """Two files of 100 writers with 10 rows each, and a third of 50 with 5: 100, 100 and 25 rows."""
    sizes = {f"w{place:03}": 10 if place < 200 else 5 for place in range(250)}
    save_writers(data, writer_arrays(sizes))
    federation = load(sample=0.1)
    total = federation.train.sizes + federation.test.sizes
    numbers = np.array([int(name[1:]) for name in federation.names])
    assert [int(total[numbers // 100 == file].sum()) for file in range(3)] == [100, 100, 25]
    assert len(federation.names) == 25, "the numbers come out even: nobody is cut"
    assert load(sample=0.1).names == federation.names
    assert load(sample=0.1, seed=1).names != federation.names
    cut = load(sample=0.103)
    total = cut.train.sizes + cut.test.sizes
    assert total.sum() == 103 + 103 + 25
    assert sorted(total.tolist())[:3] == [3, 3, 5], "the last writer of a file is cut"
    assert (cut.train.sizes > 0).all()
    assert len(load(sample=0.1, partition="iid").names) == 25


def test_json_files_are_sampled_one_by_one(data: Path) -> None:
    write_leaf(data / "femnist" / "all_data" / "a.json", leaf_file({f"a{place}": 4 for place in range(10)}))
    write_leaf(data / "femnist" / "all_data" / "b.json", leaf_file({f"b{place}": 8 for place in range(5)}))
    federation = load(sample=0.2)
    assert [sum(name.startswith(file) for name in federation.names) for file in "ab"] == [2, 1]


def test_a_hundred_writers_are_a_file() -> None:
    assert np.bincount(numbered_files(250)).tolist() == [100, 100, 50]


# ------------------------------------------------------------------------------------------------ validation, real data


def test_validation_rows_are_neither_trained_nor_tested_on(data: Path) -> None:
    save_writers(data, writer_arrays(WRITERS))
    federation = load(validation=0.2)
    assert federation.validation.sizes.tolist() == [4, 2, 1]
    for client in range(3):
        rows = [row for split in ("train", "validation", "test") for row in shades(federation, client, split)]
        assert sorted(rows) == shades(load(), client) + shades(load(), client, "test")


def test_real_writers() -> None:
    real_folder("femnist")
    federation = load()
    assert len(federation.names) == 300
    assert federation.names[:2] == ("f0424_27", "f1255_13")
    assert (federation.train.sizes.sum(), federation.test.sizes.sum()) == (41_199, 4_759)
    assert federation.train.sizes.min() >= 1
    assert set(np.unique(federation.train.y)) == set(range(62))
    assert federation.train.x.mean() > 200, "white paper is 255, as in LEAF"


def test_a_tenth_of_the_real_writers() -> None:
    real_folder("femnist")
    federation = load(sample=0.1)
    assert 25 <= len(federation.names) <= 45
    assert abs(federation.train.sizes.sum() + federation.test.sizes.sum() - 4_596) <= 3
