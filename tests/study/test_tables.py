"""Tables of a study, and how a table of texts is written."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fedmerit import Study
from fedmerit.study.tables import TABLES
from fedmerit.study.text_table import TextTable

TABLE = TextTable("50 % of A_B", ("row", "a|b"), (("<i> & [x]", "1\n2"), ("~^\\", "{$#}")), ("below",))


def test_the_same_table_in_four_forms():
    assert r"\caption{50 \% of A\_B. below.}" in TABLE.latex()
    assert r"\textless{}i\textgreater{} \& {[}x{]} & 1 2 \\" in TABLE.latex()
    assert r"\textasciitilde{}\textasciicircum{}\textbackslash{} & \{\$\#\} \\" in TABLE.latex()
    assert r"| \<i\> & \[x\] | 1 2 |" in TABLE.markdown()
    assert r"| row | a\|b |" in TABLE.markdown()
    assert "<td>&lt;i&gt; &amp; [x]</td>" in TABLE.html()


@given(st.lists(st.tuples(st.text(max_size=12), st.text(max_size=12)), max_size=4))
def test_no_text_breaks_out_of_its_cell(rows: list[tuple[str, str]]):
    table = TextTable("t", ("a", "b"), tuple(rows))
    lines = [line for line in table.markdown().splitlines() if line.startswith("|")]
    assert len(lines) == 2 + len(rows)
    for line in lines:
        assert line.replace("\\\\", "").replace("\\|", "").count("|") == 3
    body = table.latex().split("\\midrule\n")[1].split("\\bottomrule")[0].splitlines()
    assert len(body) == len(rows)
    assert all(line.replace("\\&", "").count("&") == 1 and line.endswith(" \\\\") for line in body)


def test_every_table_is_as_wide_as_its_header(study: Study):
    for table in (table for make_tables in TABLES.values() for table in make_tables(study)):
        assert {len(row) for row in table.rows} == {len(table.header)}
