"""Tables from outside: ours beside theirs, rows that were not run, and figures that follow from the clients' tests."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_reproductions import run, tiny

from fedmerit.tasks.federation import Split
from reproductions.reproduce import find_reproduction
from reproductions.reproduce.outside import ACCURACY, OUTSIDE, VARIANCE, WORST, by_client
from reproductions.reproduce.outside_fcfl import FCFL, accuracy_and_gap
from reproductions.reproduce.reproduction import WHOLE
from reproductions.reproduce.runner import Reproduced


@pytest.fixture(scope="module")
def fair(tmp_path_factory: pytest.TempPathFactory) -> Reproduced:
    return run(tiny("outside-fair", (0.9,)), tmp_path_factory.mktemp("fair") / "out", rows=("q-FFL",))


def test_figures_are_those_of_the_last_rounds_tests(fair: Reproduced):
    (study,) = fair.studies.values()
    found, local = by_client(study)["q-FFL"], study.run("q-FFL", 2).local_accuracy[-1]
    assert found[VARIANCE][1] == pytest.approx(1e4 * np.var(local))
    assert found[WORST][1] == pytest.approx(100 * local.min())
    assert found[ACCURACY][1] == pytest.approx(100 * study.run("q-FFL", 2).accuracy)


def test_published_numbers_stand_beside_ours_and_rows_not_run_have_a_line(fair: Reproduced):
    table, differences = fair.result.tables
    lines = {line[0]: line[1:] for line in table.rows}
    assert list(lines) == ["FedAvg", "q-FFL", "AFL"]
    assert lines["q-FFL"][3:] == ("89.02", "64", "75.5")
    assert lines["AFL"] == ("-", "-", "-", "84.93", "15.4", "79")
    assert [line[0] for line in differences.rows] == ["q-FFL"]


def test_rows_that_are_finished_alone_go_by_the_rounds_of_the_scale():
    one = find_reproduction("outside-pfllib")
    for scale in one.settings:
        (plan,) = one.plans(scale).values()
        ends = {row.recipe["models"]["until"] for row in plan.rows if "until" in row.recipe.get("models", {})}
        assert ends == {one.setting(scale).rounds - 5}


@pytest.mark.parametrize("one", [*OUTSIDE, FCFL], ids=lambda one: one.name)
def test_every_published_number_has_a_source_and_a_part(one):
    assert any(sign in one.paper for sign in ("20", "arXiv"))
    for setting in one.settings.values():
        assert set(one.make_result.published) == set(setting.bases or {WHOLE: None})
        assert setting.differs


def test_a_gap_is_between_the_shares_of_white_people_and_others_at_one_client():
    white = np.array([1, 1, 0, 0, 0, 1, 0], dtype=np.uint8)
    y, offsets = np.array([1, 0, 1, 0, 0, 1, 1]), np.array([0, 5, 7])
    test = Split(np.zeros((7, 1), np.float32), y, offsets, {"white": white})
    predicted = np.array([1, 1, 1, 0, 0, 1, 1])
    assert accuracy_and_gap(test, 0, predicted) == pytest.approx((4 / 5, 1 - 1 / 3))
    assert accuracy_and_gap(test, 1, predicted) == (1.0, 0.0)
