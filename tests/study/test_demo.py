"""`fedmerit demo`: a study on embedded data, its report, and the next command."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers import CommandLine, one_line

from fedmerit import Study


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
