"""Loading from a folder and from idx files: small files of the same layout, and what can be wrong with them."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from task_files import ATTRIBUTES, face_arrays, idx_bytes, write_idx, write_mnist, write_writers

from fedmerit.config.schema import TaskConfig
from fedmerit.errors import DataError
from fedmerit.tasks.datasets.mnist import read_idx
from fedmerit.tasks.registry import find_task

FACES = {7: 5, 3: 4, 9: 10, 12: 6}
"""Person 3 has too few images."""


def save_faces(data: Path, arrays: dict[str, np.ndarray]) -> Path:
    (data / "celeba").mkdir()
    np.savez(data / "celeba" / "celeba_faces64.npz", **arrays)
    return data / "celeba" / "celeba_faces64.npz"


@pytest.mark.parametrize("task", ["mnist", "fashion-mnist"])
@pytest.mark.parametrize("suffix", [".gz", ""])
def test_four_files_are_enough(data: Path, task: str, suffix: str) -> None:
    write_mnist(data / task, suffix=suffix)
    federation = find_task(task).load(TaskConfig(clients=10), 0)
    assert federation.train.sizes.tolist() == [20] * 10
    assert federation.test.sizes.tolist() == [6] * 10
    assert federation.train.attributes == {}
    numbers = federation.train.x[:, 0, 0, 0].astype(int)
    assert sorted(numbers) == list(range(200))
    assert np.array_equal(federation.train.y, numbers % 10), "images and labels were parted"


def test_writers(data: Path) -> None:
    write_mnist(data / "mnist")
    write_writers(data / "mnist")
    federation = find_task("mnist").load(TaskConfig(partition="natural"), 0)
    assert federation.names == tuple(f"writer {100 * i}" for i in range(8))
    assert federation.train.sizes.tolist() == [25] * 8
    assert federation.samples(2).attributes["hsf4"].tolist() == [1] * 25
    assert federation.samples(3).attributes["hsf4"].tolist() == [0] * 25
    assert set(federation.test.attributes["hsf4"]) == {1}
    made = find_task("mnist").load(TaskConfig(partition="iid", clients=4), 0)
    assert made.train.attributes["hsf4"].sum() == 75, "the attribute is there for made partitions, too"


def test_natural_without_the_writers_file(data: Path) -> None:
    write_mnist(data / "mnist")
    with pytest.raises(DataError, match=r"needs the file .*mnist_writers.npz"):
        find_task("mnist").load(TaskConfig(partition="natural"), 0)


def test_writers_of_other_images(data: Path) -> None:
    write_mnist(data / "mnist")
    write_writers(data / "mnist", train=100)
    with pytest.raises(DataError, match=r"mnist_writers.npz does not belong .*200 rows, 100 hsf4"):
        find_task("mnist").load(TaskConfig(), 0)


@pytest.mark.parametrize("task", ["mnist", "fashion-mnist", "celeba"])
def test_variable_not_set(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDMERIT_DATA", raising=False)
    with pytest.raises(DataError, match=rf"FEDMERIT_DATA, which is not set; .*contains {task}/"):
        find_task(task).load(TaskConfig(), 0)


def test_folder_or_file_missing(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ways_out = r"set FEDMERIT_DATA to a folder that contains mnist/"
    with pytest.raises(DataError, match=rf"needs the file .*mnist/train-images-idx3-ubyte.gz, .*; {ways_out}"):
        find_task("mnist").load(TaskConfig(), 0)
    write_mnist(data / "mnist")
    (data / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataError, match=rf"needs the file .*t10k-labels-idx1-ubyte.gz, .*; {ways_out}"):
        find_task("mnist").load(TaskConfig(), 0)
    monkeypatch.setenv("FEDMERIT_DATA", str(data / "absent"))
    with pytest.raises(DataError, match=rf"needs the file .*absent.*; {ways_out}"):
        find_task("mnist").load(TaskConfig(), 0)


def test_labels_out_of_range_and_too_few(data: Path) -> None:
    write_mnist(data / "mnist")
    write_idx(data / "mnist" / "train-labels-idx1-ubyte.gz", np.arange(200) % 11)
    with pytest.raises(DataError, match=r"labels from 0 to 9 \(got 10"):
        find_task("mnist").load(TaskConfig(), 0)
    write_idx(data / "mnist" / "train-labels-idx1-ubyte.gz", np.arange(4))
    with pytest.raises(DataError, match=r"has 200 images, .* 4 labels"):
        find_task("mnist").load(TaskConfig(), 0)


def test_faces(data: Path) -> None:
    save_faces(data, face_arrays(FACES))
    federation = find_task("celeba").load(TaskConfig(partition="natural"), 0)
    assert federation.names == ("person 7", "person 9", "person 12")
    assert federation.classes == 2
    assert federation.train.sizes.tolist() == [4, 8, 5]
    assert federation.test.sizes.tolist() == [1, 2, 1]
    assert federation.train.x.shape == (17, 64, 64, 3)
    assert tuple(federation.train.attributes) == ATTRIBUTES
    assert np.array_equal(federation.train.y, federation.train.attributes["Smiling"])
    shades = federation.test.x[:, 0, 0, 0].tolist()
    assert shades == [0, 9, 10, 19], "the authors test on the first fifth of a person's images in file order"


def test_faces_in_made_partitions(data: Path) -> None:
    save_faces(data, face_arrays(FACES))
    federation = find_task("celeba").load(TaskConfig(partition="iid"), 0)
    assert federation.names == ("0", "1", "2"), "as many clients as people"
    assert federation.train.sizes.sum() + federation.test.sizes.sum() == 21


@pytest.mark.parametrize("name", ["jpeg", "offset", "identity", "attributes", "attribute_names"])
def test_faces_lack_an_array(data: Path, name: str) -> None:
    arrays = face_arrays(FACES)
    del arrays[name]
    path = save_faces(data, arrays)
    with pytest.raises(DataError, match=f"missing: {name}") as caught:
        find_task("celeba").load(TaskConfig(partition="natural"), 0)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"offset": np.arange(3)}, "offset must rise"),
        ({"offset": np.arange(26)}, "offset must rise"),
        ({"attributes": np.zeros((25, 2), np.uint8)}, r"attributes must be \(25, 3\)"),
        ({"attributes": np.full((25, 3), 2, np.uint8)}, r"attributes must be 0 or 1; got \[2\]"),
        ({"attributes": np.full((25, 3), -1, np.int8)}, r"attributes must be 0 or 1; got \[-1\]"),
        ({"identity": np.linspace(0, 1, 25)}, "identity must be an array of whole numbers or text; got 1-d float64"),
        ({"identity": np.array(3)}, "got 0-d int64"),
        ({"attribute_names": np.array(["a", "b", "c"])}, "must contain the attribute Smiling"),
        ({"identity": np.arange(25)}, "at least 5 images"),
        ({"identity": np.array([None] * 25)}, "not a readable npz file"),
    ],
)
def test_faces_do_not_fit(data: Path, change: dict[str, np.ndarray], message: str) -> None:
    save_faces(data, {**face_arrays(FACES), **change})
    with pytest.raises(DataError, match=message):
        find_task("celeba").load(TaskConfig(partition="natural"), 0)


def test_broken_picture(data: Path) -> None:
    arrays = face_arrays(FACES)
    start = int(arrays["offset"][9])
    arrays["jpeg"] = np.concatenate([arrays["jpeg"][:start], np.zeros_like(arrays["jpeg"][start:])])
    save_faces(data, arrays)
    with pytest.raises(DataError, match=r"celeba_faces64.npz, image 9 is not a readable image"):
        find_task("celeba").load(TaskConfig(partition="natural"), 0)


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x03\x04 cut"])
def test_no_npz_at_all(data: Path, content: bytes) -> None:
    save_faces(data, {}).write_bytes(content)
    with pytest.raises(DataError, match=r"celeba_faces64.npz is not a readable npz file"):
        find_task("celeba").load(TaskConfig(partition="natural"), 0)


IMAGES = np.arange(3 * 4 * 4).reshape(3, 4, 4).astype(np.uint8)
GOOD = idx_bytes(IMAGES)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "idx magic"),
        (gzip.compress(b"", mtime=0), "idx magic"),
        (gzip.compress(GOOD, mtime=0)[:-20], "truncated"),
        (gzip.compress(GOOD, mtime=0)[:5], "truncated"),
        (b"\x1f\x8b" + b"nonsense" * 4, "cannot be read"),
        (gzip.compress(GOOD, mtime=0)[:-8] + b"\0" * 8, "CRC|cannot be read"),
        (b"PK" + GOOD[2:], "idx magic 00000803 .got 504b0803"),
        (b"\0\0\x0d\x03" + GOOD[4:], "idx magic"),
        (idx_bytes(np.arange(5)), "idx magic 00000803 .got 00000801"),
        (GOOD[:9], "within its header"),
        (GOOD[:3], "idx magic"),
        (GOOD[:-1], "must have 48 bytes after its header .got 47"),
        (GOOD + b"x", "got 49"),
        (idx_bytes(np.zeros((3, 4, 5))), r"items of shape \(4, 4\) \(got \(4, 5\)"),
        (GOOD[:4] + b"\xff" * 4 + GOOD[8:], "bytes after its header"),
    ],
)
def test_bad_file_is_named(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "some-images"
    path.write_bytes(data)
    with pytest.raises(DataError, match=message) as caught:
        read_idx(path, 4, 4)
    assert str(path) in str(caught.value)
