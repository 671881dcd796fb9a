"""A table of criteria from a CSV file."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from random import Random

import numpy as np
import pytest

from fedmerit import UserError
from fedmerit.cli.criteria_file import read_criteria
from fedmerit.tasks.formats.xlsx import read_sheet


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
        "client;DS;CB\na;10;0,5\nb;30;1\n",
        "sep=;\nclient;DS;CB\na;10;0,5\nb;30;1,0\n",
        "client\tDS\tCB\na\t10\t0,5\nb\t30\t1\n",
        "client,DS,CB\na,10,50%\nb,30,100 %\n",
        "client;DS;CB\na;10;50,0 %\nb;30;100 %\n",
        'client,DS,CB\na,10,"0,5"\nb,30,1\n',
        "client,DS,CB\na,10,0.5\nb,30,1\n".encode("utf-16"),
    ],
    ids=[
        *("plain", "windows", "spaces", "byte order mark", "id inside", "name last", "first column"),
        *("semicolons", "spreadsheet's hint", "tabs", "percent", "percent, commas", "quoted comma", "utf-16"),
    ],
)
def test_clients_and_criteria_are_found(tmp_path: Path, content: str | bytes):
    read = read_criteria(table(tmp_path, content))
    assert read.clients == ("a", "b")
    assert read.names == ("DS", "CB")
    assert read.columns(["CB", "DS"]).tolist() == [[0.5, 10], [1, 30]]


@pytest.mark.parametrize("cell", ["nan", "NaN", "inf", "-1", "-0.001", "many", "", "1,5,0", "1.000,5", "5 %", "0x10"])
def test_a_value_that_is_none_is_named_with_its_place(tmp_path: Path, cell: str):
    with pytest.raises(UserError, match=r"clients\.csv, line 3, column CB: .*; got"):
        read_criteria(table(tmp_path, f'client,DS,CB\na,1,1\nb,1,"{cell}"\n')).columns(["CB"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"needs a header line and at least one line below it; it has 0 line\(s\)"),
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


RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
TAG, MAIN = "worksheet", "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
ROWS = """<sheetData>
<row r="2"><c r="A2" t="s"><v>0</v></c><c r="B2" t="inlineStr"><is><t>DS</t></is></c><c r="D2" t="s"><v>1</v></c>
<c r="C2" t="str"><v>city</v></c></row>
<row r="4"><c r="A4" t="s"><v>2</v></c><c r="B4"><v>10</v></c><c r="D4"><v>0.5</v></c></row>
<row r="5"><c r="A5" t="s"><v>3</v></c><c r="B5"><v>30</v></c><c r="C5" t="s"><v>2</v></c><c r="D5"><v>1</v></c></row>
</sheetData>"""
SHEET = f'<?xml version="1.0"?><{TAG} xmlns="{MAIN}">{ROWS}</{TAG}>'


def xlsx(**changes: str) -> bytes:
    """A small spreadsheet; `changes` replace some of its parts, an empty one leaves it out."""
    parts = {
        "workbook": f'<w xmlns:r="{RELATIONS}"><sheets><sheet name="one" r:id="rId7"/></sheets></w>',
        "_rels/workbook.xml.rels": '<l><Relationship Id="rId7" Target="worksheets/first.xml"/></l>',
        "sharedStrings": "<s><si><t>client</t></si><si><r><t>C</t></r><r><t>B</t></r></si>"
        "<si><t>a</t></si><si><t>b</t></si></s>",
        "worksheets/first": SHEET,
    }
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in {**parts, **changes}.items():
            if text:
                file.writestr(f"xl/{name}" if name.endswith(".rels") else f"xl/{name}.xml", text)
    return content.getvalue()


def test_a_spreadsheet_is_read(tmp_path: Path):
    read = read_criteria(table(tmp_path, xlsx()))
    assert read.clients == ("a", "b")
    assert read.names == ("DS", "city", "CB")
    assert read.columns(["CB", "DS"]).tolist() == [[0.5, 10], [1, 30]]
    with pytest.raises(UserError, match="line 4, column city"):
        read.columns(["city"])


BOMB = "<!DOCTYPE s [<!ENTITY a 'aaaaaaaa'><!ENTITY b '&a;&a;&a;&a;'>]><s><si><t>&b;</t></si></s>"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK\x03\x04rest", "is not a readable xlsx file"),
        (xlsx(workbook=""), r"is no xlsx file \(perhaps ods\)"),
        (xlsx(sharedStrings=BOMB), "declares entities of its own"),
        (xlsx(sharedStrings="<s/>"), "is not a readable xlsx file"),
        (xlsx(sharedStrings="<s>" + " " * 50_000_001), "is too large"),
        (xlsx(**{"worksheets/first": SHEET.replace('r="B4"', 'r="ZZZ4"')}), "has over 16,384 columns"),
        (xlsx(**{"worksheets/first": SHEET.replace('r="B4"', 'r="4B"')}), "no cell is called '4B'"),
        (xlsx(**{"worksheets/first": SHEET[:-40]}), "is not a readable xlsx file"),
        (xlsx(**{"worksheets/first": "<w/>"}), r"it has 0 line\(s\)"),
    ],
    ids=["rest", "ods", "entities", "strings", "large", "wide", "place", "cut", "empty"],
)
def test_a_spreadsheet_that_is_none_is_refused_in_a_line(tmp_path: Path, content: bytes, message: str):
    with pytest.raises(UserError, match=message) as error:
        read_criteria(table(tmp_path, content))
    assert "\n" not in str(error.value)


def test_columns_that_are_not_asked_for_may_hold_anything(tmp_path: Path):
    read = read_criteria(table(tmp_path, "client,city,DS\na,Kiel,10\nb,Ulm,30\n"))
    assert read.columns(["DS"]).tolist() == [[10], [30]]


def test_less_can_be_better(tmp_path: Path):
    read = read_criteria(table(tmp_path, "client,error,DS\na,10 %,1\nb,40 %,2\nc,20 %,3\n"))
    assert read.columns(["error", "DS"], ["error"]) == pytest.approx(np.array([[0.4, 1], [0.1, 2], [0.3, 3]]))
    with pytest.raises(UserError, match="error is not in the priority DS"):
        read.columns(["DS"], ["error"])
    with pytest.raises(UserError, match="no column 'errors'"):
        read.columns(["DS"], ["errors"])


def test_a_hundred_thousand_clients_are_read_once_each(tmp_path: Path):
    lines = "".join(f"hospital {i};{i},5\n" for i in range(100_000))
    read = read_criteria(table(tmp_path, "client;DS\n" + lines))
    assert read.columns(["DS"]).sum() == pytest.approx(100_000 * 99_999 / 2 + 50_000)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match=r"no file .*none\.csv"):
        read_criteria(tmp_path / "none.csv")
    with pytest.raises(UserError, match="is a folder"):
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


def test_a_damaged_spreadsheet_is_an_error_of_its_own() -> None:
    """Bytes that are cut or changed, an archive that is locked, a workbook without a sheet: never anything but ours."""
    good, random = xlsx(), Random(0)
    said: list[str] = []
    for _ in range(400):
        bad = bytearray(good[: random.choice([len(good), random.randrange(len(good))])])
        for _ in range(random.choice([1, 2, 5]) if bad else 0):
            bad[random.randrange(len(bad))] = random.randrange(256)
        try:
            read_sheet(bytes(bad), "a.xlsx")
        except UserError as error:
            said.append(str(error))
    assert len(said) > 200
    assert all("a.xlsx" in text for text in said)
    with pytest.raises(UserError, match="it has no sheet"):
        read_sheet(xlsx(workbook="<w><sheets></sheets></w>"), "a.xlsx")
