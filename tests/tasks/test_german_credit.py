"""German credit: a few rows of our own, the file as published, and files that are none."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from task_files import real_folder

from fedmerit.config.schema import TaskConfig
from fedmerit.errors import DataError
from fedmerit.tasks.federation import Federation
from fedmerit.tasks.registry import find_task

NUMBERS = 7
MAN = "A11 6 A34 A43 1169 A65 A75 4 A93 A101 4 A121 67 A143 A152 2 A173 1 A192 A201 1"
WOMAN = "A12 48 A32 A410 5951 A61 A73 2 A92 A101 2 A121 22 A143 A152 1 A173 1 A191 A202 2"


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    def write_rows(content: bytes) -> None:
        (tmp_path / "german-credit").mkdir()
        (tmp_path / "german-credit" / "german.data.gz").write_bytes(gzip.compress(content))
        monkeypatch.setenv("FEDMERIT_DATA", str(tmp_path))

    return write_rows


def load(**settings: object) -> Federation:
    return find_task("german-credit").load(TaskConfig(data="german-credit", **settings), 0)  # type: ignore[arg-type]


def test_rows_of_our_own(write: Callable[[bytes], None]) -> None:
    write("\n".join([MAN, WOMAN] * 20).encode() + b"\n")
    federation = load(clients=2)
    x, y, test = federation.train.x, federation.train.y, federation.test
    assert (x.shape, len(test.y)) == ((32, 63), 8)
    men = federation.train.attributes["sex"] == 1
    assert np.array_equal(men, y == 1)  # the man is a good risk, the woman is none
    assert federation.train.attributes["age"][men].tolist() == [2] * int(men.sum())
    assert federation.train.attributes["age"][~men].tolist() == [0] * int((~men).sum())
    assert np.array_equal(federation.train.attributes["foreign"], men)
    numbers, codes = x[:, :NUMBERS], x[:, NUMBERS:]
    assert codes.sum(axis=1).tolist() == [13] * 32  # one code of each column
    assert codes[men][:, :4].tolist() == [[1, 0, 0, 0]] * int(men.sum())
    assert codes[~men][:, 19].tolist() == [1] * int((~men).sum())  # A410, the last purpose
    assert numbers.mean(axis=0) == pytest.approx(0, abs=1e-6)
    assert (numbers[men][:, 0] < numbers[~men][:, 0].min()).all()  # 6 months, 48 months
    assert (numbers[:, -1] == 0).all()  # one liable person each: nothing to standardise


def test_as_published() -> None:
    real_folder("german-credit")
    federation = load()
    assert (federation.train.x.shape, len(federation.test.y)) == ((800, 63), 200)
    assert federation.train.y.sum() + federation.test.y.sum() == 700
    sexes = np.concatenate([federation.train.attributes["sex"], federation.test.attributes["sex"]])
    assert sexes.sum() == 690


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "has no row"),
        (b"A11 6\n", "21 cells .got 2"),
        (MAN.replace("A93", "A96").encode(), "personal must be one of A91, A92, A93, A94, A95 .row 1 has 'A96'"),
        (MAN.replace("1169", "much").encode(), "amount must be an integer .row 1 has 'much'"),
        ((MAN[:-1] + "3").encode(), "risk must be one of 2, 1 .row 1 has '3'"),
        (b"\xff\xfe", "not a readable table"),
    ],
)
def test_files_that_are_none(write: Callable[[bytes], None], content: bytes, says: str) -> None:
    write(content)
    with pytest.raises(DataError, match=says):
        load()
