"""Published numbers are as printed: compared with the tables beside the data, where these are."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedmerit.tasks.build import own_test_rows
from reproductions.data import share_of_images
from reproductions.published import CELEBA_TEXT_TESTS, CELEBA_TEXT_TOTAL, DAFL_DEVICES, published


def papers() -> Path:
    """The published tables beside the data; tests that compare with them are skipped where they are not there."""
    folder = Path(os.environ.get("FEDMERIT_DATA", "nowhere")).parent / "papers"
    if not folder.is_dir():
        pytest.skip("no folder papers beside FEDMERIT_DATA: nothing to compare the published numbers with")
    return folder


def rows_of(file: str) -> list[dict[str, str]]:
    with (papers() / file).open() as lines:
        return list(csv.DictReader(lines))


def number(text: str) -> float | None:
    return float(text) if text else None


@pytest.mark.parametrize("table", [2, 4, 6])
def test_pmcfl_rounds_are_as_printed(table: int):
    ours = published().pmcfl_rounds[table]
    cells = rows_of(f"pmcfl_table{table}.csv")
    for row in cells:
        place, column = ours.targets.index(int(row["target_accuracy_pct"])), int(row["device_pct"]) // 10 - 1
        gain = None if row["experiment"] == "DS" else ours.gains[row["experiment"]][place][column]
        assert gain == number(row["gain_vs_ds_rounds"])
        if not (row["censored_at_cap"] == "1" and gain is None):
            assert ours.rounds(row["experiment"], place)[column] == number(row["implied_rounds"])
    assert len(cells) == sum(len(ours.rounds(row, p)) for row in ("DS", *ours.gains) for p in range(len(ours.targets)))
    for row in rows_of(f"pmcfl_table{table}_avg.csv"):
        place = ours.targets.index(int(row["target_accuracy_pct"]))
        assert ours.averages[row["experiment"]][place] == float(row["avg_printed"])


@pytest.mark.parametrize("table", [3, 5, 7])
def test_pmcfl_errors_are_as_printed(table: int):
    names = ("ds_wrong_exp_wrong", "ds_wrong_exp_right", "ds_right_exp_wrong", "ds_right_exp_right")
    theirs = {
        row["experiment"]: tuple(int(row[name]) for name in names)
        for row in rows_of(f"pmcfl_table{table}_confusion.csv")
    }
    assert published().pmcfl_errors[table] == theirs


def test_dafl_rounds_are_as_printed():
    theirs = rows_of("device_aware_table1.csv")
    for row in theirs:
        name = row["priority"].replace("mean_of_6", "mean")
        ours = published().dafl_rounds[int(row["target_accuracy_pct"])][row["study"]][name]
        assert ours.cells[DAFL_DEVICES.index(int(row["device_pct"]))] == number(row["rounds"])
    ours = published().dafl_rounds
    assert len(theirs) == 6 * sum(len(rows) for studies in ours.values() for rows in studies.values())


@pytest.mark.parametrize("table", [2, 3])
def test_m2f_clients_are_as_printed(table: int):
    theirs = [
        tuple(map(float, [v for k, v in row.items() if k != "label_space"])) for row in rows_of(f"m2f_table{table}.csv")
    ]
    assert list(published().m2f_clients[table]) == theirs


def test_the_sizes_of_the_split_that_the_papers_text_describes(data_folder: Callable[[str], Path]):
    """Half of the images, people with at least five, a fifth each for testing: as the erratum on CelebA says."""
    with np.load(data_folder("celeba") / "celeba_annotations.npz", allow_pickle=False) as file:
        identity = file["identity"].astype(np.int64)
    sizes = [np.arange(images) for images in range(5, 36)]
    tests = own_test_rows(sizes, np.zeros(36, np.int64), "slices", 0)[1]
    tested = np.array([0] * 5 + [len(rows) for rows in tests])  # by a person's images
    held = []
    for seed in range(1, 31):
        _, images = np.unique(identity[share_of_images(identity, 0.5, seed)], return_counts=True)
        held.append(np.bincount(tested[images], minlength=6)[1:])
    mean, deviation = CELEBA_TEXT_TOTAL
    totals = np.array(held) @ np.arange(1, 6)
    assert abs(totals.mean() - mean) < 3 * deviation / len(held) ** 0.5
    assert deviation / 2 < totals.std(ddof=1) < 2 * deviation
    assert np.mean(held, axis=0) == pytest.approx(list(CELEBA_TEXT_TESTS.values()), abs=25)
    assert sum(size * clients for size, clients in CELEBA_TEXT_TESTS.items()) == pytest.approx(mean, abs=deviation)
