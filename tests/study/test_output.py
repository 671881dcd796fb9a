"""Output of a study: tables of texts, on the screen, as JSON, exported; and the demo."""

import json
import re
from pathlib import Path

import pandas as pd
import pytest
from helpers import CommandLine, one_line
from hypothesis import given
from hypothesis import strategies as st
from small_study import small_plan
from study_task import FAILS

from fedmerit import Study
from fedmerit.study.plan import dump_plan
from fedmerit.study.tables import TABLES
from fedmerit.study.text_table import TextTable


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(dump_plan(small_plan()))
    return path


def test_the_screen_has_every_row_and_says_what_seeds_can_tell(cli: CommandLine, toml: Path, study_folder: Path):
    answer = cli("compare", toml, "--out", study_folder)
    assert (answer.code, answer.err) == (0, "")
    flat = " ".join(answer.out.split())
    for text in ("still & 100% _FedAvg_", "LD > DS", ">6", "not reached", "baseline"):
        assert text in flat
    assert "2 seeds cannot reach p < 0.05; use at least 8." in flat
    assert f"next: fedmerit report {study_folder} --out report.html" in answer.out.replace("\n", "")
    assert cli("compare", toml, "--out", study_folder).out == answer.out


def test_json_is_one_object_with_all_comparisons(cli: CommandLine, toml: Path, study: Study):
    answer = cli("compare", toml, "--out", study.folder, "--json").json
    assert answer["baseline"] == "FedAvg"
    assert (answer["unfinished"], answer["failed"]) == ({}, {})
    assert len(answer["compared"]) == len(study.compared)
    assert answer["reached"][0]["horizon"] == 6
    assert None in [line["rounds"] for line in answer["reached"]]


def test_show_of_a_study_prints_its_tables_without_running(cli: CommandLine, study: Study):
    answer = cli("report", study.folder, "--text")
    assert answer.code == 0
    assert all(row in answer.out for row in study.rows)
    assert "verdict" in answer.out
    assert cli("report", study.folder, "--text", "--json").json["baseline"] == study.plan.against
    assert "--target is for one run" in one_line(cli("report", study.folder, "--text", "--target", "0.5"))


def test_an_export_writes_over_a_file_when_forced(cli: CommandLine, study: Study, tmp_path: Path):
    path = tmp_path / "compared.csv"
    path.write_text("before")
    assert "--force" in one_line(cli("export", study.folder, "--out", path))
    assert cli("export", study.folder, "--out", path, "--force").code == 0
    assert path.read_text().startswith("row,")
    assert "choose another --out" in one_line(cli("export", study.folder, "--out", tmp_path, "--force"))


def test_csv_has_the_frames_in_full(cli: CommandLine, study: Study, tmp_path: Path):
    for name in ("compared", "reached", "metrics", "curves", "events"):
        frame = getattr(study, name)
        out = tmp_path / f"{name}.csv"
        assert cli("export", study.folder, "--table", name, "--out", out).code == 0
        back = pd.read_csv(out)
        assert list(back.columns) == list(frame.columns)
        assert len(back) == len(frame)
    back = pd.read_csv(tmp_path / "compared.csv")
    pd.testing.assert_frame_equal(back, study.compared, check_dtype=False)


@pytest.mark.parametrize("table", ["compared", "reached", "saved"])
def test_latex_and_markdown_have_the_tables_as_on_the_screen(
    cli: CommandLine, study: Study, tmp_path: Path, table: str
):
    for form in ("latex", "markdown"):
        assert cli("export", study.folder, "--format", form, "--table", table, "--out", tmp_path / form).code == 0
    latex, markdown = (tmp_path / "latex").read_text(), (tmp_path / "markdown").read_text()
    assert latex.count("\\toprule") == latex.count("\\bottomrule") == latex.count("\\begin{tabular}") > 0
    assert "still \\& 100\\% \\_FedAvg\\_ & " in latex
    assert "| LD \\> DS | " in markdown


def test_a_run_exports_its_frames(cli: CommandLine, study: Study, tmp_path: Path):
    run = study.runs[0].folder
    assert cli("export", run, "--out", tmp_path / "rounds.csv").code == 0
    assert list(pd.read_csv(tmp_path / "rounds.csv")["round"]) == [1, 2, 3, 4, 5, 6]
    assert cli("export", run, "--table", "weights", "--out", tmp_path / "w").code == 0
    assert "weight" in pd.read_csv(tmp_path / "w").columns


def test_mistakes_in_exports_are_one_line(cli: CommandLine, study: Study, tmp_path: Path):
    run, out = study.runs[0].folder, tmp_path / "out"
    assert "no run and no study in" in one_line(cli("export", tmp_path, "--out", out))
    assert "give one of --out FILE" in one_line(cli("export", run))
    assert "give one of --out FILE" in one_line(cli("export", run, "--out", out, "--card", out))
    assert "unknown format 'excel'" in one_line(cli("export", run, "--format", "excel", "--out", out))
    assert "latex is for tables of a study" in one_line(cli("export", run, "--format", "latex", "--out", out))
    assert "unknown table of a run 'round'" in one_line(cli("export", run, "--table", "round", "--out", out))
    assert "unknown table" in one_line(cli("export", study.folder, "--table", "rounds", "--out", out))
    assert "unknown table" in one_line(
        cli("export", study.folder, "--format", "latex", "--table", "metrics", "--out", out)
    )
    assert "has a study, and this command needs one run" in one_line(cli("export", study.folder, "--card", out))
    assert not out.exists()
    out.write_text("mine")
    assert "exists" in one_line(cli("export", run, "--out", out))
    assert out.read_text() == "mine"


def test_mistakes_in_studies_are_one_line(cli: CommandLine, study: Study, tmp_path: Path, toml: Path):
    assert "no configuration file" in one_line(cli("compare", tmp_path / "none.toml", "--out", tmp_path / "s"))
    toml.write_text(toml.read_text() + "\n[base.run.schedule]\nrates = 3\n")
    assert "base: run.schedule" in one_line(cli("compare", toml, "--out", tmp_path / "s"))
    toml.write_text(dump_plan(small_plan(seeds=[3])))
    assert "has another study" in one_line(cli("compare", toml, "--out", study.folder))
    assert not (tmp_path / "s").exists()


def test_a_failed_run_ends_with_one_and_its_reason(cli: CommandLine, tmp_path: Path, toml: Path):
    rows = [{"name": "fails", "train": FAILS}, {"name": "FedAvg"}]
    toml.write_text(dump_plan(small_plan(row=rows, seeds=[3], targets=[0.5])))
    answer = cli("compare", toml, "--out", tmp_path / "s", "--jobs", "1")
    assert answer.code == 1
    assert "2 of 2 runs: FedAvg, seed 3 done" in answer.out
    assert "fails, seed 3 failed: RuntimeError: no [disk] left" in answer.out.splitlines()
    answer = cli("compare", toml, "--out", tmp_path / "s", "--json")
    assert (answer.code, json.loads(answer.out)["failed"]) == (1, {"fails, seed 3": "RuntimeError: no [disk] left"})


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


def test_the_demo_ends_with_what_happened_the_page_and_the_next_command(cli: CommandLine, tmp_path: Path):
    out = tmp_path / "demo"
    answer = cli("demo", "--out", out, "--rounds", "2", "--seed", "4")
    assert answer.code == 0, answer.err
    study = Study.load(out)
    assert study.plan.seeds == tuple(range(4, 14))
    assert not study.failed
    happened, page, following = answer.out.splitlines()[-3:]
    shares = dict(re.findall(r"^(FedAvg|ours \(.*?\)) +([\d.]+)% +[\d.]+%$", answer.out, flags=re.M))
    fedavg, ours, accuracy, *_ = re.findall(r"([\d.]+)(?:%| )", happened)
    assert (fedavg, ours) == tuple(f"{float(shares[row]):.0f}" for row in ("FedAvg", "ours (FedVal)"))
    assert float(accuracy) == pytest.approx(study.metrics.query("row == 'FedAvg'")["accuracy"].mean(), abs=5e-4)
    assert "that no recipe saw" in happened
    assert Path(page.split()[1]).read_text().startswith("<!doctype html>")
    table = tmp_path / "table.csv"
    table.write_text("hospital,age,died\n" + "".join(f"{row % 3},{row},{row % 2}\n" for row in range(60)))
    (words,) = re.findall(r"fedmerit (init .*?), then", following)
    files = {"FILE.csv": table, "my.toml": tmp_path / "my.toml"}
    assert cli(*(files.get(word, word) for word in words.split()), "--yes").code == 0
    assert "exists" in one_line(cli("demo", "--out", out))
