"""Tables of reproductions on tiny real runs: the papers' layout, published beside measured, censoring, errata."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import ANY

import numpy as np
import pytest
from rich.console import Console
from tiny_reproductions import run, tiny

from fedmerit import load_task
from fedmerit.errors import ConfigError, FolderError, RunStopped
from fedmerit.store.run_folder import environment
from fedmerit.study.plan import Row
from fedmerit.study.statistics import restricted
from fedmerit.study.study import OnStep, compare
from fedmerit.study.study_folder import Member
from fedmerit.study.text_table import TextTable
from fedmerit.study.verdicts import NOISE, TOO_FEW
from fedmerit.study.workers import Played
from reproductions.published import published
from reproductions.reproduce import find_reproduction
from reproductions.reproduce.agreement import (
    Agreement,
    CorrectRows,
    agreement,
    best_agreement,
    find_correct,
    read_correct,
    write_correct,
)
from reproductions.reproduce.cells import NOT_SEEN, SEEN, Claim, Times, gain_cell, mean_cell, rounds_cell
from reproductions.reproduce.measured import read_measured, run_missing
from reproductions.reproduce.output import row_settings, write_page
from reproductions.reproduce.pmcfl import Tables
from reproductions.reproduce.rates import rate_folder, rate_plan, search_rate
from reproductions.reproduce.runner import Reproduced, reproduce, so_far

LATE = np.array([False, True])


def cells(table: TextTable, row: str) -> tuple[str, ...]:
    """The line of a row by its label."""
    (line,) = [line for line in table.rows if line[0] == row]
    return line[1:]


def below(table: TextTable, row: str) -> tuple[str, ...]:
    """The measured line after a published one."""
    place = [line[0] for line in table.rows].index(row)
    assert table.rows[place + 1][0] == "measured"
    return table.rows[place + 1][1:]


@pytest.fixture(scope="module")
def table2(tmp_path_factory: pytest.TempPathFactory) -> Reproduced:
    """At 100 % accuracy no run arrives."""
    return run(tiny("pmcfl-table2", (0.2, 1.0, 0.5, 0.6)), tmp_path_factory.mktemp("reproduced") / "table2")


def test_published_rounds_stand_above_measured_ones(table2: Reproduced):
    first, last = table2.result.tables[0], table2.result.tables[3]
    assert first.header[1:] == ("10%", "20%", "30%", "40%", "50%", "60%", "70%", "80%", "90%", "mean")
    assert cells(first, "DS, published")[:9] == ("1", "1", "1", "1", "1", "4", "4", "4", "5")
    assert cells(last, "MW>LD>DS, published")[8] == "-16"
    assert cells(last, "MW>LD>DS, published")[9] == "-1.78†"
    assert last.below[-1].startswith("† see python -m reproductions errata finding-4")
    assert "above 70 % (measured: above 20 %)" in first.title


def test_measured_cells_are_means_over_seeds_with_an_interval(table2: Reproduced):
    study = table2.studies[""]
    reached = study.reached[(study.reached["row"] == "DS") & (study.reached["target"] == 0.2)]
    rounds = reached[reached["share"] == 0.5]["rounds"].to_numpy()
    shown = below(table2.result.tables[0], "DS, published")[4]
    assert shown == mean_cell(restricted(rounds, 3))
    assert shown.endswith("]")


def test_cells_that_no_run_reached_stay_censored(table2: Reproduced):
    never = table2.result.tables[1]
    assert set(below(never, "DS, published")) == {"> 3"}
    assert set(below(never, "LD, published")) == {"both > 3"}


def test_errors_are_counted_on_the_same_images(table2: Reproduced):
    errors = table2.result.tables[-1]
    assert errors.title.startswith("Table 3")
    assert cells(errors, "LD, published")[:4] == ("0†", "98", "106", "9,796")
    counts = [float(cell.split()[0]) for cell in below(errors, "LD, published")[:4]]
    study = table2.studies[""]
    tested = best_agreement(study)[["both", "only_baseline", "only_row", "neither"]].iloc[0].sum()
    assert sum(counts) == pytest.approx(tested, abs=0.2)
    assert "see python -m reproductions errata finding-3" in errors.below[-1]


def test_errors_are_those_of_the_best_models(table2: Reproduced):
    """The accuracies beside the errors are the best of each run by its ledger, not the final ones."""
    metrics, shown = table2.studies[""].metrics, below(table2.result.tables[-1], "MW, published")
    best = [metrics[metrics["row"] == row]["best"].to_numpy(dtype=float) for row in ("DS", "MW")]
    assert shown[-2:] == tuple(mean_cell(values, 4) for values in best)


def test_agreement_is_counted_row_by_row():
    baseline = np.array([True, True, False, False, True])
    row = np.array([True, False, True, False, False])
    counts = agreement(CorrectRows(baseline, "a"), CorrectRows(row, "a"))
    assert counts == Agreement(both=1, only_baseline=2, only_row=1, neither=1)
    assert counts.neither_if_independent == pytest.approx(2 * 3 / 5)
    with pytest.raises(FolderError, match="the same test rows"):
        agreement(CorrectRows(baseline, "a"), CorrectRows(row, "b"))


def test_correct_rows_are_kept(tmp_path: Path):
    task = load_task("digits", clients=4)
    rows = find_correct(task, task.learner.start(1))
    write_correct(tmp_path / "correct/a.npz", rows)
    again = read_correct(tmp_path / "correct/a.npz")
    assert (again.correct.tolist(), again.test_set) == (rows.correct.tolist(), rows.test_set)


@pytest.mark.parametrize(("number", "figure"), [(2, "2a"), (4, "2b")])
def test_pmcfls_figures_have_a_curve_per_row(table2: Reproduced, number: int, figure: str):
    made = find_reproduction(f"pmcfl-table{number}").make_result(table2.setting, table2.studies)
    assert list(made.figures) == [f"figure{figure}"]
    picture = made.figures[f"figure{figure}"]
    assert picture.count("<polyline") == 2 * 8  # the curve and its mark in the legend; DS is 0
    assert all(row.replace(">", "&gt;") in picture for row in table2.studies[""].rows)
    assert f"Figure {figure}: accuracy minus that of DS" in picture
    assert ">round</text>" in picture


def test_the_learning_rate_is_searched_on_the_baseline_alone(tmp_path: Path):
    one = tiny("pmcfl-table2", (0.2, 0.8))
    setting = replace(one.setting("small"), rates=(1e-9, 0.5))
    one = replace(one, settings={"small": setting})
    tuning = rate_plan(one, "small")
    assert tuning.tune.about("accuracy") == "rounds until 50% of the devices are above 80%"
    assert tuning.base["recipe"] == one.rows[0]["recipe"]
    tuned = search_rate(tuning, tmp_path / "a", jobs=1)
    assert tuned.best == {"train.lr": 0.5}
    assert rate_folder(tmp_path / "a") == tmp_path / "a-rate"
    assert one.plans("small", 1, lr=0.25)[""].config(one.plans("small", 1)[""].rows[3], 1).train.lr == 0.25
    with pytest.raises(ConfigError, match="dafl-table1 has no search for a learning rate"):
        rate_plan(find_reproduction("dafl-table1"), "small")


def test_table_6_marks_averages_exchanged_names_and_impossible_cells(tmp_path: Path):
    """With rows that come later; another scale in the same folder is refused."""
    one = tiny("pmcfl-table6", (0.2, 0.3, 0.4))
    rows = tuple(row | {"recipe": {"name": "fedavg"}} for row in one.rows)  # the digits have no blurry images
    alone = run(replace(one, rows=rows), tmp_path / "a", 1, ("DS",))
    assert [table.title[:7] for table in alone.result.tables] == ["Table 6"] * 3
    reproduced = run(replace(one, rows=rows), tmp_path / "a", 1, ("IS", "IS>DS>CB"))
    assert reproduced.studies[""].rows == ["DS", "IS", "IS>DS>CB"]
    table, errors = reproduced.result.tables[0], reproduced.result.tables[-1]
    assert len(table.header) == 1 + 8 + 1
    assert cells(table, "IS, published as CB§")[-1] == "+7.67†‡"
    assert cells(table, "IS>DS>CB, published as CB>DS>IS§")[4] == "+6¶"
    for shown in (alone.result.tables[0], table, errors):
        signs = [line[0] for line in shown.below if "see python -m reproductions errata" in line]
        assert all(any(sign in cell for row in shown.rows for cell in row) for sign in signs), shown.below
    assert any(line.startswith("‡ see python -m reproductions errata pmcfl-averages") for line in table.below)
    assert list(reproduced.result.figures) == ["figure3"]
    assert "IS&gt;DS&gt;CB (equal to DS)" in reproduced.result.figures["figure3"]
    assert [line[0] for line in errors.rows] == ["IS, published", "measured", "IS>DS>CB, published", "measured"]
    with pytest.raises(FolderError, match="has another study"):
        run(
            replace(tiny("pmcfl-table6", (0.2, 0.3, 0.4), run={"rounds": 4}), rows=rows),
            tmp_path / "a",
            1,
            ("IS", "IS>DS>CB"),
        )


def test_an_unfinished_run_is_shown_as_far_as_it_went(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    rounds = 200  # enough that the run does not end before the stop reaches it
    one = tiny("pmcfl-table2", (0.2, 1.0, 0.5, 0.6), run={"rounds": rounds})
    plans = one.plans("small", 1, ("DS",))

    @contextmanager
    def stop(runs: list[Member]) -> Iterator[OnStep]:
        yield lambda step: os.kill(os.getpid(), signal.SIGINT) if step.answer == Played(2, ANY, ANY) else None

    with pytest.raises(RunStopped):
        reproduce(one, "small", plans, tmp_path / "a", jobs=1, watch=stop)
    reproduced = so_far(one, "small", plans, tmp_path / "a")
    (played,) = reproduced.studies[""].unfinished.values()
    assert 2 <= played < rounds
    assert reproduced.unfinished == {"DS, seed 1": f"{played} of {rounds} rounds"}
    assert reproduced.seconds > 0  # a call that was stopped counts
    assert set(below(reproduced.result.tables[1], "DS, published")) == {f"> {played}"}
    assert float(below(reproduced.result.tables[0], "DS, published")[0].split()[0]) <= played
    monkeypatch.setattr("fedmerit.store.run_folder.kernels", lambda: "another processor's")
    assert (
        so_far(one, "small", plans, tmp_path / "a").unfinished == reproduced.unfinished
    )  # to look, any machine will do
    with pytest.raises(FolderError, match="this machine's are for another processor's"):
        reproduce(one, "small", plans, tmp_path / "a", jobs=1)


def test_measured_runs_are_appended_to_a_file_and_not_run_again(tmp_path: Path):
    """Stopped after one run and continued; then in another folder, as on another machine; a diverged run is listed."""
    one, file = tiny("pmcfl-table2", (0.2, 1.0, 0.5, 0.6)), tmp_path / "measured.csv"
    (plan,) = one.plans("small", 2, ("LD",), null=True).values()

    @contextmanager
    def stop(runs: list[Member]) -> Iterator[OnStep]:
        at = ("LD", Played(1, ANY, ANY))
        yield lambda step: os.kill(os.getpid(), signal.SIGINT) if (step.member.row, step.answer) == at else None

    with pytest.raises(RunStopped):
        run_missing(plan, tmp_path / "a", file, jobs=1, watch=stop)
    assert list(read_measured(plan, file).lines) == [("DS", 1)]
    run_missing(plan.model_copy(update={"seeds": (1,)}), tmp_path / "a", file, jobs=1)
    measured = run_missing(plan, tmp_path / "b", file, jobs=1)
    assert list(measured.lines) == [(row, seed) for seed in (1, 2) for row in ("DS", "LD", "null")]
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["seed2"]
    study = compare(plan, tmp_path / "c", jobs=1)
    tables = find_reproduction("pmcfl-table2").make_result
    assert isinstance(tables, Tables)
    made = tables.of_measured(one.setting("small"), measured)
    assert made.tables[:4] == tables(one.setting("small"), {"": study}).tables[:4]
    few = sum(rounds <= 3 for block in published().pmcfl_rounds[2].baseline for rounds in block if rounds is not None)
    assert made.tables[4].rows[0][:2] == ("DS", str(few))
    file.write_text(re.sub(r"^(LD,2,3,[^,]+),False", r"\1,True", file.read_text(), flags=re.M))
    without = tables.of_measured(one.setting("small"), read_measured(plan, file))
    same = "rows with the same weights, run once: DS = LD"
    assert without.notes[2:] == (same, "diverged, not averaged: LD, seed 2")
    assert below(without.tables[0], "LD, published")[0] == "+0.0"  # one seed: no interval
    file.write_text(
        re.sub(r"^(LD,2,.*)$", lambda line: re.sub(r"(?<=,)(?=,|$)", "3", line[1]), file.read_text(), flags=re.M)
    )
    late = tables.of_measured(one.setting("small"), read_measured(plan, file))
    assert late.notes[2:] == (same, "diverged, not averaged: LD, seed 2 (after all targets, round 3)")
    file.write_text(re.sub(r"^LD,.*\n", "", file.read_text(), flags=re.M))
    filled = run_missing(plan, tmp_path / "d", file, tables.alike, jobs=1)
    assert not (tmp_path / "d").exists()
    assert filled.lines["LD", 2] == filled.lines["DS", 2]
    assert tables.alike("MW>LD>DS") == tables.alike("MW") != tables.alike("DS>MW>LD") == tables.alike("LD>MW>DS")
    other = plan.model_copy(update={"base": plan.base | {"run": {"rounds": 4}}})
    with pytest.raises(ConfigError, match="DS, seed 1 was run with other settings"):
        read_measured(other, file)


def test_dafl_has_means_of_six_starts_and_what_adjusting_saves(tmp_path: Path):
    reproduced = run(tiny("dafl-table1", (0.2, 0.4)), tmp_path / "a", 1)
    table = reproduced.result.tables[0]
    assert table.header[-3:] == ("Low", "Mid", "High")
    assert cells(table, "Ind Ds, published") == ("22", "29", "39", "62", "304", "801", "25.5", "50.5", "552.5")
    assert cells(table, "MCA mean, published")[5] == "690.1‡"
    assert "Ind Ld, published†" in [line[0] for line in table.rows]
    assert sum(line[0].startswith("Final") for line in table.rows) == 7
    assert [line[0] for line in table.rows][-1] == "Merged Ds>Ld>Md, measured"
    assert reproduced.result.tables[2].title.startswith("Rounds saved by adjusting")


def test_m2f_has_clients_claims_and_curves(tmp_path: Path):
    schedule = {"rates": [[0.25, 6], [0.5, 6], [1.0, 8]], "epochs": [1, 2]}
    settings = {"task": {"clients": 40, "validation": 0.2}, "run": {"rounds": 4, "schedule": schedule}}
    tables = tiny("m2f-table2", (0.9,), **settings)
    reproduced = run(tables, tmp_path / "a", 2)
    first, claims = reproduced.result.tables
    assert cells(first, "1, published") == ("1", "1,071", "0.2", "94.78†", "45", "43")
    place = [line[0] for line in first.rows].index("1, published")
    assert [line[0] for line in first.rows[place + 1 : place + 4]] == ["keep", "reset", "fedavg"]
    assert first.rows[place + 1][3] == "0.25"
    assert {line[3] for line in claims.rows} == {TOO_FEW}
    again = run(tables, tmp_path / "a", 2)  # nothing is left to do
    assert again.seconds > reproduced.seconds / 2, "the clock of the first call is kept"
    assert again.result.tables == reproduced.result.tables
    other = find_reproduction("m2f-table3").make_result(reproduced.setting, reproduced.studies)  # of the same runs
    assert cells(other.tables[0], "39, published")[4:] == ("9§", "9")
    assert cells(other.tables[0], "24, published‡")[0] == "1"
    figures = find_reproduction("m2f-figures").make_result(reproduced.setting, reproduced.studies)
    assert [line[1] for line in figures.tables[-1].rows] == ["keep"] * 18 + ["reset"] * 18
    picture = figures.figures["figure2"]
    assert picture.count("<polyline") == 2 * 8  # six of clients and two of FedAvg, each with its mark in the legend
    assert picture.count("<polygon") == 8


def test_a_page_has_command_settings_and_tables(table2: Reproduced, tmp_path: Path):
    write_page(table2, tmp_path / "page.md", "python -m reproductions pmcfl-table2")
    page = (tmp_path / "page.md").read_text()
    assert "    python -m reproductions pmcfl-table2\n" in page
    assert "18 runs of 3 rounds: 9 rows" in page
    assert '- row `LD>MW>DS`: `{"name": "prioritized", "criteria": ["LD", "MW", "DS"]' in page
    assert 'data = "digits"' in page
    assert "| DS, published | 1 | 1 |" in page


def test_a_page_names_the_machines_of_the_runs_not_its_own(tmp_path: Path):
    made = run(tiny("pmcfl-table2", (0.2, 0.3, 0.5, 0.6)), tmp_path / "a", seeds=2, rows=("DS",))
    with sqlite3.connect(tmp_path / "a/runs/ds-seed1/ledger.db") as ledger:
        ledger.execute("UPDATE meta SET value = 'Zen 9' WHERE key = 'cpu'")
    ledger.close()
    here = environment()
    write_page(made, tmp_path / "two.md", "python -m reproductions pmcfl-table2", "learning rate 0.5: the best")
    text = (tmp_path / "two.md").read_text()
    assert "Machines, between which rounding differs: 1 run on " in text
    assert f"1 run on Zen 9 ({here['machine']}, {here['instructions']})" in text
    assert f"1 run on {here['cpu']} (" in text
    assert "\nLearning rate 0.5: the best.\n" in text


def test_what_another_version_made_is_told_but_not_resumed(tmp_path: Path):
    reproduction = tiny("pmcfl-table2", (0.2, 0.3, 0.5, 0.6))
    made = run(reproduction, tmp_path / "a", seeds=1, rows=("DS",))
    with sqlite3.connect(tmp_path / "a/runs/ds-seed1/ledger.db") as ledger:
        ledger.execute("UPDATE meta SET value = 'earlier' WHERE key = 'code'")
    ledger.close()
    plans = reproduction.plans("small", 1, ["DS"])
    assert so_far(reproduction, "small", plans, tmp_path / "a").result.tables == made.result.tables
    with pytest.raises(FolderError, match="other versions: code earlier then"):
        reproduce(reproduction, "small", plans, tmp_path / "a", jobs=1)


@pytest.mark.parametrize(("name", "row"), [("pmcfl-table2", "DS"), ("dafl-table1", "Ds")])
def test_titles_say_at_or_above_for_both_targets(name: str, row: str, tmp_path: Path):
    reproduction = tiny(name, (0.2, 0.3) if name.startswith("dafl") else (0.2, 0.3, 0.4, 0.5))
    plans = reproduction.plans("small", 1, [row], or_equal=True)
    made = reproduce(reproduction, "small", plans, tmp_path / "a", jobs=1)
    assert made.result.tables[0].title.endswith("at or above 20 %)")


def test_names_of_rows_are_folded_between_words():
    header = ("DS: rounds; others: gain", *(f"{share} %" for share in range(10, 100, 10)))
    table = TextTable(
        "Table 2", header, (("MW>LD>DS, published†", *["1"] * 9), ("null (draw), measured", *["both > 40"] * 9))
    )
    console = Console(width=80, color_system=None)
    with console.capture() as captured:
        console.print(table.screen())
    lines = captured.get().splitlines()
    assert max(map(len, lines)) <= 80
    words = {word for line in lines for word in line.split()}
    assert words >= {"MW>LD>DS,", "published†", "measured", "(draw),", "rounds;", "others:"}
    roomy = Console(width=118, color_system=None)
    with roomy.capture() as captured:
        roomy.print(table.screen())
    assert "DS: rounds; others:" in captured.get()  # it gives way by what is missing, no more
    wide = Console(width=200, color_system=None)
    with wide.capture() as captured:
        wide.print(table.screen())
    assert "null (draw), measured" in captured.get()


def test_a_page_shows_what_a_row_has_of_its_own():
    row = Row(name="AFL", recipe="agnostic", train={"lr": 0.1}, task={"clients": 9}, null=True)
    assert row_settings(row) == '`{"name": "agnostic"}`, train `{"lr": 0.1}`, task `{"clients": 9}`, null'


def test_a_folder_that_holds_something_else_is_refused(tmp_path: Path):
    (tmp_path / "thesis.tex").touch()
    for name in ("fedval-ratios", "fedval-baselines"):
        with pytest.raises(FolderError, match="holds"):
            run(find_reproduction(name), tmp_path)


def times(values: list[float], missed: list[bool]) -> Times:
    return Times(np.array(values), np.array(missed), 40)


@pytest.mark.parametrize(
    ("base", "row", "shown"),
    [
        (times([10, 14], [False, False]), times([9, 13], [False, False]), "+1.0 [+1.0, +1.0]"),
        (times([10, 14], [False, False]), times([9, 40], [False, True]), "≤ -12.5 [-26.0, +1.0]"),
        (times([40, 14], [True, False]), times([9, 13], [False, False]), "≥ +16.0 [+1.0, +31.0]"),
        (times([40, 14], [True, False]), times([40, 13], [True, False]), "≈ +0.5 [+0.0, +1.0]"),
        (times([40, 40], [True, True]), times([40, 40], [True, True]), "both > 40"),
    ],
)
def test_gains_say_which_way_they_are_bounds(base: Times, row: Times, shown: str):
    assert gain_cell(base, row) == shown


def test_a_star_needs_an_interval_without_0_and_five_seeds():
    base, row = times([9.0] * 5, [False] * 5), times([8.0, 7.0, 8.0, 7.0, 8.0], [False] * 5)
    assert gain_cell(base, row).startswith("+1.4* [+1.0")
    assert "*" not in gain_cell(times([9.0] * 4, [False] * 4), times([8.0, 7.0, 8.0, 7.0], [False] * 4))


def test_rounds_with_runs_that_did_not_arrive():
    assert rounds_cell(times([10, 40], [False, True])) == "> 25.0 [10.0, 40.0]"
    assert rounds_cell(times([40, 40], [True, True])) == "> 40"
    assert rounds_cell(times([40, 40], [False, False])) == "40.0 [40.0, 40.0]"
    assert rounds_cell(times([float("nan")], [False])) == "-"


@pytest.mark.parametrize(
    ("holds_by", "verdict"),
    [
        ([1, 2, 3, 2, 1], SEEN),
        ([-1, 2, -3, 2, 1], NOISE),
        ([-1, -2, -3, -2, -1], NOT_SEEN),
        ([0, 0, 0, 0, 0], NOT_SEEN),
        ([1, 2, 3, 2], TOO_FEW),
    ],
)
def test_claims_are_judged_by_their_interval(holds_by: list[float], verdict: str):
    assert Claim("it holds", "keep", np.array(holds_by, dtype=float)).verdict == verdict
