"""Exports for papers: LaTeX that compiles, with deviations, the best in bold and labels; figures as SVG and PDF."""

import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from helpers import CommandLine, one_line

from fedmerit import Study
from fedmerit.study.text_table import TextTable

TEX = next((name for name in ("pdflatex", "tectonic", "lualatex", "xelatex") if shutil.which(name)), None)


def exported(cli: CommandLine, study: Study, out: Path, *options: str) -> str:
    answer = cli("export", study.folder, "--out", out, *options)
    assert answer.code == 0, answer.err
    return out.read_text(encoding="utf-8")


def test_means_come_with_their_deviation_and_the_best_is_bold(cli: CommandLine, study: Study, tmp_path: Path) -> None:
    text = exported(cli, study, tmp_path / "t.tex", "--format", "latex")
    metrics = study.metrics[study.metrics["finished"]].groupby("row")["accuracy"]
    means, deviations = metrics.mean(), metrics.std()
    best = means.idxmax()
    lines = text.split("\\end{table}")[0].splitlines()
    bold = [line for line in lines if "\\textbf" in line]
    assert len(bold) == (means == means.max()).sum()
    assert f"\\textbf{{{means[best]:.4f} $\\pm$ {deviations[best]:.4f}}}" in bold[0]
    assert "$\\pm$: standard deviation over" in text
    assert not re.search(r"[^\w.$]-\d", text)
    markdown = exported(cli, study, tmp_path / "t.md", "--format", "markdown")
    assert f"**{means[best]:.4f} ± {deviations[best]:.4f}**" in markdown


def test_other_measures_audits_and_rounds_have_deviations_too(cli: CommandLine, study: Study, tmp_path: Path) -> None:
    text = exported(cli, study, tmp_path / "t.md", "--format", "markdown")
    finished = study.metrics[study.metrics["finished"]].groupby("row")
    for name, digits in {"p10": 3, "variance": 4, "audit balanced_accuracy": 3}.items():
        mean, deviation = finished[name].mean(), finished[name].std()
        assert f"{mean['LD > DS']:.{digits}f} ± {deviation['LD > DS']:.{digits}f}" in text
    best = finished["variance"].mean().idxmin()
    assert f"**{finished['variance'].mean()[best]:.4f} ± " in text  # less is better
    reached = exported(cli, study, tmp_path / "r.md", "--format", "markdown", "--table", "reached")
    one = study.reached[(study.reached["target"] == 0.5) & (study.reached["share"] == 0.5)]
    rounds = one[one["row"] == "FedAvg"]["rounds"]
    shown = f"{rounds.mean():.1f} ± {rounds.std():.1f}" if rounds.notna().all() else f">{rounds.fillna(6).mean():.4g}"
    assert shown in reached.replace("\\", "")
    assert ">6 ±" not in reached.replace("\\", "")


def test_every_table_has_a_label_of_its_own(cli: CommandLine, study: Study, tmp_path: Path) -> None:
    labels = []
    for table in ("compared", "reached", "saved"):
        text = exported(cli, study, tmp_path / f"{table}.tex", "--format", "latex", "--table", table)
        labels += re.findall(r"\\label\{(tab:[a-z0-9-]+)\}", text)
        assert text.count("\\label") == text.count("\\caption")
    assert len(set(labels)) == len(labels)
    assert {"tab:compared", "tab:compared-2", "tab:reached"} <= {*labels}


@pytest.mark.skipif(TEX is None, reason="no TeX on this machine to compile the tables with")
def test_the_tables_compile(cli: CommandLine, study: Study, tmp_path: Path) -> None:
    parts = [
        exported(cli, study, tmp_path / f"{table}.tex", "--format", "latex", "--table", table)
        for table in ("compared", "reached", "saved")
    ]
    odd = TextTable("50 % of A_B^~", ("row", "a|b"), (("<i> & [x] \\ #$", "-1 ± 2"),), best=frozenset({(0, 1)}))
    body = "\n".join([*parts, odd.latex("odd"), r"See \ref{tab:compared}."])
    page = f"\\documentclass{{article}}\n\\usepackage{{booktabs}}\n\\begin{{document}}\n{body}\n\\end{{document}}\n"
    (tmp_path / "page.tex").write_text(page, encoding="utf-8")
    options = [] if TEX == "tectonic" else ["-interaction=nonstopmode", "-halt-on-error"]
    done = subprocess.run([str(TEX), *options, "page.tex"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]


@pytest.mark.parametrize("figure", ["curves", "differences"])
def test_figures_are_drawn_from_the_study(cli: CommandLine, study: Study, tmp_path: Path, figure: str) -> None:
    pytest.importorskip("matplotlib")
    options = ["--figure", figure, "--format"]
    text = exported(cli, study, tmp_path / "a.svg", *options, "svg")
    words = "".join(ElementTree.fromstring(text).itertext())
    assert all(row in words for row in study.rows if figure == "curves" or row != study.plan.against)
    assert ("round" if figure == "curves" else "in points, 95% interval") in words
    assert exported(cli, study, tmp_path / "b.svg", *options, "svg") == text
    for name in ("a.pdf", "b.pdf"):
        assert cli("export", study.folder, *options, "pdf", "--out", tmp_path / name).code == 0
    assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")
    assert (tmp_path / "a.pdf").read_bytes() == (tmp_path / "b.pdf").read_bytes()


def test_mistakes_with_figures_are_one_line(
    cli: CommandLine, study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*options: object) -> str:
        return one_line(cli("export", study.folder, *options))

    out = tmp_path / "a.svg"
    assert "unknown figure of a study 'acuracy'" in refused("--figure", "acuracy", "--format", "svg", "--out", out)
    assert "unknown format of a figure 'csv'" in refused("--figure", "curves", "--out", out)
    assert "--figure needs --out FILE" in refused("--figure", "curves", "--card", out)
    assert "unknown format 'svg'" in refused("--format", "svg", "--out", out)
    one_run = one_line(cli("export", study.runs[0].folder, "--figure", "curves", "--format", "svg", "--out", out))
    assert "no study in" in one_run
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "pip install 'fedmerit[report]'" in refused("--figure", "curves", "--format", "svg", "--out", out)
    assert not out.exists()
