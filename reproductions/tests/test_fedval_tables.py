"""FedVal's tables on real rows (COMPAS, which loads fast): measures on the test rows, paired differences, parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from tiny_reproductions import run

from fedmerit.study.output import progress
from reproductions.reproduce import find_reproduction
from reproductions.reproduce.fedval import measure
from reproductions.reproduce.output import write_page
from reproductions.reproduce.reproduction import Setting
from reproductions.reproduce.runner import reproduce


def test_measures_are_taken_on_the_test_rows_and_compared_in_pairs(data_folder: Callable[[str], Path], tmp_path: Path):
    data_folder("compas")
    one = find_reproduction("fedval-ratios")
    base = one.setting("small").bases["poisoned-60"]
    task = base["task"] | {"data": "compas", "model": "compas-mlp", "clients": 4, "kinds": {"poisoned": 0.5}}
    few = Setting({"poisoned-50": {**base, "task": task, "run": base["run"] | {"rounds": 2}}}, 0.1)
    reproduced = run(replace(one, settings={"small": few}), tmp_path / "a", 1, ("FedVal, unranked",))
    values, differences = reproduced.result.tables
    assert [line[0] for line in values.rows] == ["FedAvg", "FedVal, unranked"]
    assert values.title == "Measured (poisoned 50 %)"
    study = reproduced.studies["poisoned-50"]
    measured = measure(study)
    fedavg, fedval = measured["FedAvg"], measured["FedVal, unranked"]
    assert fedavg["accuracy"][0] == pytest.approx(float(study.metrics["accuracy"].iloc[0]))
    assert 0 < fedavg["weight of the planted"][0] < 1
    change = float(np.mean(fedval["accuracy"] - fedavg["accuracy"]))
    assert float(differences.rows[0][1].rstrip("*")) == pytest.approx(change, abs=5e-4)
    assert (tmp_path / "a" / "bars.svg").read_text().count("<rect") == 1 + 3 * 2


def test_runs_of_one_name_in_two_parts_are_counted_and_named_apart(data_folder: Callable[[str], Path], tmp_path: Path):
    data_folder("compas")
    one = find_reproduction("fedval-ratios")
    base = one.setting("small").bases["poisoned-60"]
    task = base["task"] | {"data": "compas", "model": "compas-mlp", "clients": 4}
    few = base | {"run": base["run"] | {"rounds": 1}}
    parts = {kind: few | {"task": task | {"kinds": {kind: 0.5}}} for kind in ("poisoned", "free_rider")}
    one = replace(one, settings={"small": Setting(parts, 0.1)})
    plans, lines = one.plans("small", 1, ("FedVal, unranked",)), StringIO()
    console = Console(file=lines, width=200)
    reproduced = reproduce(one, "small", plans, tmp_path / "a", jobs=1, watch=lambda runs: progress(console, runs))
    counts = [line.partition(":")[0] for line in lines.getvalue().splitlines()]
    assert counts == [f"{number} of 4 runs" for number in (1, 2, 3, 4)]
    write_page(reproduced, tmp_path / "page.md", "python -m reproductions fedval-ratios")
    differs = "`free_rider`: the same with `task.kinds.free_rider = 0.5`, without `task.kinds.poisoned`\n"
    assert differs in (tmp_path / "page.md").read_text()
    later = {part: replace(study, failed={"FedAvg, seed 1": part}) for part, study in reproduced.studies.items()}
    failed = replace(reproduced, studies=later).failed
    assert list(failed) == ["poisoned: FedAvg, seed 1", "free_rider: FedAvg, seed 1"]
