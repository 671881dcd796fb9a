"""Shakespeare by role: windows by hand, what is left out, training that lowers the loss, and the real texts."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedmerit import federate, load_task, prioritized
from fedmerit.errors import DataError
from fedmerit.tasks.datasets.shakespeare import ALPHABET, LENGTH, STRIDE, encode, make_rows, windows

TEXT = "To be, or not to be, that is the question:\nWhether 'tis nobler in the mind to suffer\n"


def write(folder: Path, roles: list[object]) -> None:
    (folder / "shakespeare").mkdir()
    with gzip.open(folder / "shakespeare/roles.jsonl.gz", "wt") as file:
        file.write("".join(json.dumps(role) + "\n" for role in roles))


def role(name: str, times: int) -> dict[str, object]:
    return {"play": "hamlet", "role": name, "speeches": [TEXT] * times}


def test_windows_by_hand():
    text = "".join(ALPHABET[1 + place % 90] for place in range(LENGTH + STRIDE + 1))
    x, y, verse = windows(text)
    assert x.shape == (2, LENGTH)
    assert x[1].tolist() == encode(text)[STRIDE : STRIDE + LENGTH].tolist()
    assert y.tolist() == [encode(text)[LENGTH], encode(text)[LENGTH + STRIDE]]
    assert verse.tolist() == [0, 0]
    assert windows("short")[0].shape == (0, LENGTH)
    assert encode("é").tolist() == encode(" ").tolist()


def test_no_row_reaches_from_training_into_testing():
    rows = make_rows(iter([("a: B", TEXT * 20), ("a: C", "too short")]))
    assert rows.ids.names == ("a: B",)
    cut = int(len(TEXT * 20) * 0.8)
    assert (~rows.for_test).sum() == len(windows((TEXT * 20)[:cut])[1])
    with pytest.raises(DataError, match="at least 1,000 characters"):
        make_rows(iter([("a: C", "too short")]))


def test_roles_are_clients_with_their_criteria(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write(tmp_path, [role("HAMLET", 30), role("OPHELIA", 20), role("GHOST", 2)])
    monkeypatch.setenv("FEDMERIT_DATA", str(tmp_path))
    train = {"lr": 1.0, "batch": 16, "epochs": 1}
    task = load_task("shakespeare", model="shakespeare-lstm-small", train=train)
    assert task.federation.names == ("hamlet: HAMLET", "hamlet: OPHELIA")
    run = federate(task, prioritized("attribute:verse", "LD", "DS", normalise="max"), rounds=4, fraction=1.0)
    first, last = (run.ledger.rounds()[place]["accuracy"] for place in (0, -1))
    assert 0 < last >= first
    assert set(run.explain(1)[0].criteria) == {"attribute:verse", "LD", "DS"}


def test_damaged_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write(tmp_path, [{"play": "hamlet"}])
    monkeypatch.setenv("FEDMERIT_DATA", str(tmp_path))
    with pytest.raises(DataError, match="line 1 needs play, role and speeches"):
        load_task("shakespeare")
    (tmp_path / "shakespeare/roles.jsonl.gz").write_bytes(b"not gzip")
    with pytest.raises(DataError, match="is damaged"):
        load_task("shakespeare")


def test_the_real_texts(data_folder: Callable[[str], Path]):
    data_folder("shakespeare")
    data = load_task("shakespeare", clients=20).federation
    assert len(data.names) == 20
    assert data.train.y.max() < len(ALPHABET)
    assert np.all(data.test.sizes > 0)
