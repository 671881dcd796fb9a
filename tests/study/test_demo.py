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
    assert repr(study) == "<Study demo: 3 rows x 5 seeds, all finished>"
    assert study.plan.seeds == (4, 5, 6, 7, 8)
    assert "95% interval" in answer.out
    assert (out / "report.html").read_text().startswith("<!doctype html>")
    hint = re.search(r"fedmerit explain (.+) --round 2$", answer.out, flags=re.M)
    assert hint
    assert "LD > DS" in cli("explain", hint[1], "--round", "2").out
    assert "exists" in one_line(cli("demo", "--out", out))
