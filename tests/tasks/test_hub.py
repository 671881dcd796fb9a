"""The hub, by way of local parquet files with the columns and features of the hub's data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from PIL import Image
from task_files import picture

from fedmerit.config.schema import TaskConfig
from fedmerit.errors import DataError
from fedmerit.tasks.registry import find_task

DIGIT = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(num_classes=10)})
FACE = datasets.Features(
    {
        "image": datasets.Image(),
        "celeb_id": datasets.Value("int64"),
        "Blurry": datasets.Value("bool"),
        "Smiling": datasets.Value("bool"),
    }
)


def write(folder: Path, split: str, columns: dict[str, list[Any]], features: datasets.Features) -> None:
    rows = datasets.Dataset.from_dict(columns, features=features)
    rows.to_parquet(folder / f"{split}-00000-of-00001.parquet")


def write_digits(folder: Path, train: int = 40, test: int = 20, size: int = 28) -> None:
    for split, count in (("train", train), ("test", test)):
        images = [Image.fromarray(np.full((size, size), row, np.uint8)) for row in range(count)]
        write(folder, split, {"image": images, "label": [row % 10 for row in range(count)]}, DIGIT)


def write_faces(folder: Path) -> None:
    """Person 1 has images in all splits, person 2 too few, person 3 all in `valid`."""
    shade = 0
    for split, people in (("train", [1, 1, 2, 1]), ("valid", [3, 3, 3, 3, 3, 1]), ("test", [1, 1, 2])):
        images = []
        for _ in people:
            image = picture(178, 218, (255, 0, 0))
            image.paste((shade, shade, shade), (0, 20, 178, 198))
            images.append(image)
            shade += 10
        smiles = [row % 2 == 0 for row in range(len(people))]
        columns = {"image": images, "celeb_id": people, "Blurry": [False] * len(people), "Smiling": smiles}
        write(folder, split, columns, FACE)


def load(task: str, source: object, **options: Any) -> Any:
    return find_task(task).load(TaskConfig(source=f"hub:{source}", **options), 0)


@pytest.mark.parametrize("task", ["mnist", "fashion-mnist"])
def test_digits_of_a_local_hub(hub: Path, task: str) -> None:
    write_digits(hub)
    federation = load(task, hub, clients=4)
    assert federation.train.sizes.tolist() == [10] * 4
    assert federation.test.x[:, 5, 5, 0].tolist() == list(range(20)), "test rows stay in file order"
    assert np.array_equal(federation.train.y, federation.train.x[:, 5, 5, 0] % 10)
    assert federation.train.x.shape == (40, 28, 28, 1)
    assert federation.train.x.dtype == np.uint8


def test_faces_of_a_local_hub(hub: Path) -> None:
    write_faces(hub)
    federation = load("celeba", hub, partition="natural")
    assert federation.names == ("person 1", "person 3")
    assert federation.train.x.shape == (9, 64, 64, 3)
    assert federation.samples(0).x[:, 0, 0, 0].tolist() == [10, 30, 90, 100, 110], "all splits, in order"
    assert federation.test.x[:, 0, 0, 0].tolist() == [0, 40]
    assert (federation.train.x == federation.train.x[:, :1, :1, :1]).all(), "the margins are cropped"
    assert tuple(federation.train.attributes) == ("Blurry", "Smiling")
    assert federation.samples(0).y.tolist() == [0, 0, 0, 1, 0]


@pytest.mark.parametrize("source", ["hub", "hub:no/such-data-set", "hub:no_such_folder/here"])
@pytest.mark.parametrize("task", ["mnist", "fashion-mnist", "celeba", "femnist"])
def test_out_of_reach(hub: Path, task: str, source: str) -> None:
    with pytest.raises(DataError, match=r"cannot be loaded from the hub .*check the name and the network"):
        find_task(task).load(TaskConfig(source=source), 0)


def test_missing_column(hub: Path) -> None:
    write(hub, "train", {"label": [1]}, datasets.Features({"label": DIGIT["label"]}))
    with pytest.raises(DataError, match="split 'train', must have the columns image; got label"):
        load("mnist", hub)
    with pytest.raises(DataError, match="must have the columns image, celeb_id, Smiling; got label"):
        load("celeba", hub, partition="natural")


def test_missing_split(hub: Path) -> None:
    write(hub, "train", {"image": [Image.new("L", (28, 28))], "label": [1]}, DIGIT)
    with pytest.raises(DataError, match="split: 'test' is not present"):
        load("mnist", hub)


def test_images_of_another_size(hub: Path) -> None:
    write_digits(hub, size=32)
    with pytest.raises(DataError, match=r"image 0: must be of shape \(28, 28, 1\); got \(32, 32, 1\)"):
        load("mnist", hub)


@pytest.mark.parametrize(
    ("label", "kind", "message"),
    [
        (10, datasets.Value("int64"), "labels of .* must be 0 to 9; got 10 to 10"),
        (-1, datasets.Value("int64"), "got -1 to -1"),
        ("one", datasets.Value("string"), "column 'label' of .* must hold whole numbers"),
        (None, datasets.Value("int64"), "must hold whole numbers"),
    ],
)
def test_bad_labels(hub: Path, label: Any, kind: Any, message: str) -> None:
    columns = {"image": [Image.new("L", (28, 28))], "label": [label]}
    write(hub, "train", columns, datasets.Features({"image": datasets.Image(), "label": kind}))
    with pytest.raises(DataError, match=message):
        load("mnist", hub)


def test_column_image_without_images(hub: Path) -> None:
    features = datasets.Features({"image": datasets.Value("string"), "label": DIGIT["label"]})
    write(hub, "train", {"image": ["a file name"], "label": [1]}, features)
    with pytest.raises(DataError, match=r"column 'image' of .* must hold images; got Value"):
        load("mnist", hub)


def test_image_that_cannot_be_decoded(hub: Path) -> None:
    write(hub, "train", {"image": [{"bytes": b"no image", "path": None}], "label": [1]}, DIGIT)
    with pytest.raises(DataError, match=r"an image of .* cannot be decoded"):
        load("mnist", hub)


def test_attribute_with_gaps(hub: Path) -> None:
    columns = {
        "image": [picture(178, 218, (0, 0, 0))] * 5,
        "celeb_id": [1] * 5,
        "Blurry": [True, None, False, False, False],
        "Smiling": [True] * 5,
    }
    write(hub, "train", columns, FACE)
    with pytest.raises(DataError, match=r"columns Blurry of .* must be true or false in every row"):
        load("celeba", hub, partition="natural")
