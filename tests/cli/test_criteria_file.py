"""A table of criteria from a CSV file."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedmerit import UserError
from fedmerit.cli.criteria_file import read_criteria


def table(folder: Path, content: str | bytes) -> Path:
    path = folder / "clients.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    "content",
    [
        "client,DS,CB\na,10,0.5\nb,30,1\n",
        "client,DS,CB\r\na,10,0.5\r\nb,30,1",
        "\n client , DS ,CB\n\n a , 10 ,0.5\nb,3e1,1.0\n , ,\n",
        b"\xef\xbb\xbfDS,client,CB\n10,a,0.5\n30,b,1\n",
        'DS,ID,CB\n10,"a",0.5\n30,"b",1\n',
        "DS,CB,Name\n10,0.5,a\n30,1,b\n",
        "hospital,DS,CB\na,10,0.5\nb,30,1\n",
    ],
    ids=["plain", "windows", "spaces", "byte order mark", "id inside", "name last", "first column"],
)
def test_clients_and_criteria_are_found(tmp_path: Path, content: str | bytes):
    read = read_criteria(table(tmp_path, content))
    assert read.clients == ("a", "b")
    assert read.names == ("DS", "CB")
    assert read.raw.tolist() == [[10, 0.5], [30, 1]]
    assert read.columns(["CB", "DS"]).tolist() == [[0.5, 10], [1, 30]]


@pytest.mark.parametrize("cell", ["nan", "NaN", "inf", "-1", "-0.001", "many", "", "1,5", "0x10"])
def test_a_value_that_is_none_is_named_with_its_place(tmp_path: Path, cell: str):
    with pytest.raises(UserError, match=r"clients\.csv, line 3, column CB: values are finite numbers >= 0; got"):
        read_criteria(table(tmp_path, f'client,DS,CB\na,1,1\nb,1,"{cell}"\n'))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"needs a header line and at least one client; it has 0 line\(s\)"),
        ("\n  \n", r"it has 0 line\(s\)"),
        ("client,DS\n", r"it has 1 line\(s\)"),
        ("client,DS\na,1\nb\n", "line 3: 1 cells for 2 columns"),
        ("client,DS\na,1,2\n", "line 2: 3 cells for 2 columns"),
        ("client,DS\na,1\nb,2\na,3\n", "line 4: every client has a name of its own; got 'a'"),
        ("client,DS\n ,1\n", "line 2: every client has a name of its own; got ''"),
        ("client,DS,CB,DS\na,1,1,1\n", "names a column twice: DS"),
        ("client,DS,\na,1,1\n", "column 3 has no name"),
        ("client\na\n", "at least one criterion"),
        (b"client,DS\na,\xff\n", "not CSV text"),
    ],
)
def test_a_file_that_is_no_table_is_refused(tmp_path: Path, content: str | bytes, message: str):
    with pytest.raises(UserError, match=message):
        read_criteria(table(tmp_path, content))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match=r"no file .*none\.csv"):
        read_criteria(tmp_path / "none.csv")
    with pytest.raises(UserError, match="cannot read"):
        read_criteria(tmp_path)


@pytest.mark.parametrize(
    ("priority", "message"),
    [
        (["DS", "cb"], r"no column 'cb' \(did you mean 'CB'\?\); it has: DS, CB"),
        (["Sharpness"], "no column 'Sharpness'; it has: DS, CB"),
        (["client"], "no column 'client'"),
        (["DS", "DS"], "repeated: DS"),
    ],
)
def test_a_priority_of_other_columns_is_refused(tmp_path: Path, priority: list[str], message: str):
    read = read_criteria(table(tmp_path, "client,DS,CB\na,1,1\n"))
    with pytest.raises(UserError, match=message):
        read.columns(priority)
