"""FedVal's tables on real rows (COMPAS, which loads fast): measures on the test rows, paired differences, parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny import run

from fedmerit.reproduce import find_reproduction
from fedmerit.reproduce.entry import Setting
from fedmerit.reproduce.fedval_tables import measure


def test_measures_are_taken_on_the_test_rows_and_compared_in_pairs(data_folder: Callable[[str], Path], tmp_path: Path):
    data_folder("compas")
    one = find_reproduction("fedval-ratios")
    base = one.setting("small").bases["poisoned-60"]
    task = base["task"] | {"data": "compas", "model": "compas-mlp", "clients": 4, "kinds": {"poisoned": 0.5}}
    few = Setting({"poisoned-50": {**base, "task": task, "run": base["run"] | {"rounds": 2}}}, 0.1)
    made = run(replace(one, settings={"small": few}), tmp_path / "a", 1, ("FedVal, unranked",))
    values, differences = made.told.tables
    assert [line[0] for line in values.rows] == ["FedAvg", "FedVal, unranked"]
    assert values.title == "Measured (poisoned 50 %)"
    study = made.studies["poisoned-50"]
    measured = measure(study)
    fedavg, fedval = measured["FedAvg"], measured["FedVal, unranked"]
    assert fedavg["accuracy"][0] == pytest.approx(float(study.figures["accuracy"].iloc[0]))
    assert 0 < fedavg["weight of the poisoned"][0] < 1
    change = float(np.mean(fedval["accuracy"] - fedavg["accuracy"]))
    assert float(differences.rows[0][1].rstrip("*")) == pytest.approx(change, abs=5e-4)
    assert (tmp_path / "a" / "bars.svg").read_text().count("<rect") == 1 + 3 * 2
