"""`fedmerit demo`: a study on embedded data, its report, and where to ask why."""

from __future__ import annotations

import re
from pathlib import Path

from helpers import CommandLine, one_line

from fedmerit import Study


def test_the_demo_compares_writes_its_report_and_says_what_to_ask_next(cli: CommandLine, tmp_path: Path):
    out = tmp_path / "demo"
    answer = cli("demo", "--out", out, "--rounds", "2", "--seed", "4")
    assert answer.code == 0, answer.err
    study = Study.load(out)
    assert repr(study) == "<Study demo: 3 rows x 7 seeds, all finished>"
    assert study.plan.seeds == (4, 5, 6, 7, 8, 9, 10)
    assert "95% interval" in answer.out
    assert (out / "report.html").read_text().startswith("<!doctype html>")
    hint = re.search(r"fedmerit explain (.+) --round 2$", answer.out, flags=re.M)
    assert hint
    assert "validated:accuracy" in cli("explain", hint[1], "--round", "2").out
    held = dict(re.findall(r"^(FedAvg|FedVal top|robust) +([\d.]+)% +[\d.]+%$", answer.out, flags=re.M))
    assert float(held["FedVal top"]) < float(held["FedAvg"])  # who holds the weight is shown, and merit matters
    assert float(held["robust"]) < float(held["FedAvg"])
    assert max(map(len, answer.out.splitlines())) <= 80 + len(str(out))
    assert "exists" in one_line(cli("demo", "--out", out))
