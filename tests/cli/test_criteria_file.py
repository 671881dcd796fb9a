"""A table of criteria from a CSV or xlsx file."""

import io
import sys
import zipfile
from datetime import date, datetime
from pathlib import Path
from random import Random

import openpyxl
import pytest
from helpers import CommandLine, one_line

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
        ("client,DS\na,1\nb\n", "line 3 must have 2 cells, as the header"),
        ("client,DS\na,1,2\n", "line 2 must have 2 cells, as the header"),
        ("client,DS\na,1\nb,2\na,3\n", "line 4: every client needs its own name; got 'a'"),
        ("client,DS\n ,1\n", "line 2: every client needs its own name; got ''"),
        ("client,DS,CB,DS\na,1,1,1\n", "names a column twice: DS"),
        ("client,DS,\na,1,1\n", "column 3 has no name"),
        ("client\na\n", "at least one criterion"),
        (b"client,DS\na,\xff\n", "not CSV text"),
    ],
)
def test_a_file_that_is_no_table_is_refused(tmp_path: Path, content: str | bytes, message: str):
    with pytest.raises(UserError, match=message):
        read_criteria(table(tmp_path, content))


FORMATS = "http://schemas.openxmlformats.org"
MAIN = f"{FORMATS}/spreadsheetml/2006/main"
RELATIONS = f"{FORMATS}/officeDocument/2006/relationships"
CONTENT = "application/vnd.openxmlformats-officedocument.spreadsheetml"
ROWS = """
<row r="2"><c r="A2" t="s"><v>0</v></c><c r="B2" t="inlineStr"><is><t>DS</t></is></c>
<c r="C2" t="str"><v>city</v></c><c r="D2" t="s"><v>1</v></c></row>
<row r="4"><c r="A4" t="s"><v>2</v></c><c r="B4"><v>10</v></c><c r="D4"><f>1/2</f><v>0.5</v></c></row>
<row r="5"><c r="A5" t="s"><v>3</v></c><c r="B5"><v>30</v></c><c r="C5" t="s"><v>2</v></c>
<c r="D5" t="b"><v>1</v></c></row>
"""
STRINGS = "<si><t>client</t></si><si><r><t>C</t></r><r><t>B</t></r></si><si><t>a</t></si><si><t> b </t></si>"


def xlsx(
    rows: str = ROWS,
    strings: str = STRINGS,
    sheets: str = '<sheet name="one" sheetId="1" r:id="rId7"/>',
    doctype: str = "",
    without: str = "",
) -> bytes:
    """A small spreadsheet as Excel writes it, in which the sheet is not in its usual place."""
    overrides = "".join(
        f'<Override PartName="/xl/{name}.xml" ContentType="{CONTENT}.{kind}+xml"/>'
        for name, kind in {"workbook": "sheet.main", "sheets/first": "worksheet", "strings": "sharedStrings"}.items()
    )
    types = f'<Types xmlns="{FORMATS}/package/2006/content-types">{overrides}</Types>'
    link = f'<Relationship Id="rId7" Type="{RELATIONS}/worksheet" Target="sheets/first.xml"/>'
    links = f'<Relationships xmlns="{FORMATS}/package/2006/relationships">{link}</Relationships>'
    sheet = f'<worksheet xmlns="{MAIN}"><dimension ref="A1:B2"/><sheetData>{rows}</sheetData></worksheet>'
    parts = {
        "[Content_Types].xml": types,
        "xl/workbook.xml": f'<workbook xmlns="{MAIN}" xmlns:r="{RELATIONS}"><sheets>{sheets}</sheets></workbook>',
        "xl/_rels/workbook.xml.rels": links,
        "xl/strings.xml": f'{doctype}<sst xmlns="{MAIN}">{strings}</sst>',
        "xl/sheets/first.xml": sheet,
    }
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in parts.items():
            if name != without:
                file.writestr(name, text)
    return content.getvalue()


def test_a_spreadsheet_is_read(tmp_path: Path):
    """Shared, formatted and inline strings, a formula, a boolean, empty rows and cells, wrong dimensions."""
    read = read_criteria(table(tmp_path, xlsx()))
    assert read.clients == ("a", "b")
    assert read.names == ("DS", "city", "CB")
    assert read.columns(["CB", "DS"]).tolist() == [[0.5, 10], [1, 30]]
    with pytest.raises(UserError, match="line 4, column city"):
        read.columns(["city"])


def test_a_spreadsheet_of_openpyxl_with_dates_is_read(tmp_path: Path):
    book = openpyxl.Workbook()
    book.active.append(["visit", "DS", "share", "seen"])
    book.active.append([date(2024, 5, 1), 10, 0.5, datetime(2024, 5, 1, 12, 30)])
    book.active.append([date(2024, 5, 2), 1e20, 1, "never"])
    book.create_sheet("notes").append(["not", "read"])
    book.save(tmp_path / "clients.xlsx")
    read = read_criteria(tmp_path / "clients.xlsx")
    assert read.clients == ("2024-05-01", "2024-05-02")
    assert read.columns(["DS", "share"]).tolist() == [[10, 0.5], [1e20, 1]]
    with pytest.raises(
        UserError, match="line 2, column seen: values must be finite numbers; got '2024-05-01 12:30:00'"
    ):
        read.columns(["seen"])


LAUGHS = "".join(f"<!ENTITY e{i} '{f'&e{i - 1};' * 10 if i else 'a' * 10}'>" for i in range(9))
FAR = '<row r="{row}"><c r="{cell}"><v>1</v></c></row>'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK\x03\x04rest", "is not a readable xlsx file"),
        (xlsx(without="[Content_Types].xml"), r"is not an xlsx file \(perhaps ods\)"),
        (xlsx(without="xl/workbook.xml"), "is not a readable xlsx file"),
        (xlsx(strings="<si><t>&e8;</t></si>", doctype=f"<!DOCTYPE s [{LAUGHS}]>"), "is not a readable xlsx file"),
        (xlsx(strings=""), "is not a readable xlsx file"),
        (xlsx(strings="<si><t>" + " " * 50_000_001), "is too large: xl/strings.xml has over 50,000,000 bytes"),
        (xlsx(ROWS.replace('r="D4"', 'r="ZZZ4"')), "row 4 is beyond 1,048,576 rows or 16,384 columns"),
        (xlsx(ROWS + FAR.format(row=10**12, cell="A1")), "row 1,048,577 is beyond 1,048,576 rows"),
        (
            xlsx("".join(FAR.format(row=i, cell=f"XFD{i}") for i in range(1, 700))),
            "is too large: over 10,000,000 cells",
        ),
        (xlsx(ROWS.replace('r="B4"', 'r="4B"')), "is not a readable xlsx file"),
        (xlsx(ROWS[:-40]), "is not a readable xlsx file"),
        (xlsx(""), r"it has 0 line\(s\)"),
        (xlsx(sheets=""), "has no sheet"),
    ],
    ids=[
        *("rest", "ods", "no workbook", "entities", "no strings", "large", "wide", "long", "cells", "place", "cut"),
        *("empty", "no sheet"),
    ],
)
def test_a_spreadsheet_that_cannot_be_read_is_an_error_of_one_line(tmp_path: Path, content: bytes, message: str):
    with pytest.raises(UserError, match=message) as error:
        read_criteria(table(tmp_path, content))
    assert "\n" not in str(error.value)
    assert "clients.csv" in str(error.value)


def test_without_openpyxl_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(UserError, match=r"clients\.csv is an xlsx file .*install the extra `data`"):
        read_criteria(table(tmp_path, xlsx()))


def test_a_table_of_200_000_columns_is_weighed_and_a_wrong_name_is_short(tmp_path: Path, cli: CommandLine):
    """Work that grows with the square of the columns would take minutes here."""
    header, row = ",".join(f"lab {i}" for i in range(200_000)), "1," * 199_999
    path = table(tmp_path, f"client,{header}\na,{row}1\nb,{row}3\n")
    assert cli("weigh", path, "--priority", "lab 199999", "--json").json["weights"] == [0.25, 0.75]
    assert one_line(cli("weigh", path, "--priority", "beds")).endswith("lab 5, lab 6 and 199993 more")


def test_a_column_is_found_by_symbol_or_full_name(tmp_path: Path):
    read = read_criteria(table(tmp_path, "client,Error rate,DS,Class Balance\na,10 %,1,0.5\n"))
    for names in (["error_rate", "dataset size", "CB"], ["ERROR-RATE", "ds", "class balance"]):
        assert read.columns(names).tolist() == [[0.1, 1, 0.5]]
    with pytest.raises(UserError, match="repeated: DS"):
        read.columns(["DS", "dataset size"])


def test_a_file_that_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match=r"no file .*none\.csv"):
        read_criteria(tmp_path / "none.csv")
    with pytest.raises(UserError, match="is a folder"):
        read_criteria(tmp_path)


@pytest.mark.parametrize(
    ("priority", "message"),
    [
        (["DS", "CBs"], r"no column 'CBs' \(did you mean 'CB'\?\); it has: DS, CB"),
        (["Participation"], "no column 'Participation'; it has: DS, CB"),
        (["client"], "no column 'client'"),
        (["DS", "DS"], "repeated: DS"),
    ],
)
def test_a_priority_of_other_columns_is_refused(tmp_path: Path, priority: list[str], message: str):
    read = read_criteria(table(tmp_path, "client,DS,CB\na,1,1\n"))
    with pytest.raises(UserError, match=message):
        read.columns(priority)


def test_a_damaged_spreadsheet_is_a_user_error(tmp_path: Path) -> None:
    """Whatever bytes are cut or changed, the table is read or the error names the file."""
    good, random = xlsx(), Random(0)
    messages: list[str] = []
    for _ in range(400):
        bad = bytearray(good[: random.choice([len(good), random.randrange(4, len(good))])])
        for _ in range(random.choice([1, 2, 5])):
            bad[random.randrange(4, len(bad))] = random.randrange(256)
        try:
            read_criteria(table(tmp_path, bytes(bad)))
        except UserError as error:
            messages.append(str(error))
    assert len(messages) > 200
    assert all("clients.csv" in text for text in messages)
