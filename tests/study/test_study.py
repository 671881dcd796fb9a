"""Frames of studies and runs: what they say is what the ledgers say."""

import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from small_study import ROWS, small_plan

from fedmerit import Run, Study, UserError
from fedmerit.core.measures import rounds_to_target
from fedmerit.errors import FolderError
from fedmerit.study.study_folder import write_plan

NAMES = [row["name"] for row in ROWS]


def test_figures_are_the_ledgers(study: Study):
    metrics = study.metrics
    assert list(metrics["row"]) == NAMES * 2
    assert metrics["finished"].all()
    for _, line in metrics.iterrows():
        run = study.run(line["row"], line["seed"])
        rounds, local = run.ledger.rounds(), np.sort(run.local_accuracy[-1])
        assert line["accuracy"] == run.accuracy
        assert line["best"] == max(row["accuracy"] for row in rounds)
        assert [line[key] for key in ("p10", "p50", "p90")] == [rounds[-1][key] for key in ("p10", "p50", "p90")]
        assert line["worst"] == local[0]  # the worst tenth of eight clients is one
        assert line["variance"] == pytest.approx(np.var(local))
        assert line["bytes_up"] == sum(row["bytes_up"] for row in rounds)
        assert line["audit accuracy"] == pytest.approx(local.mean())  # no rows at the server: the clients' mean


def test_rounds_to_target_keep_what_was_not_reached(study: Study):
    reached = study.reached
    assert len(reached) == 10 * 2 * 2
    assert set(reached["horizon"]) == {6}
    for _, line in reached.iterrows():
        run = study.run(line["row"], line["seed"])
        rounds = rounds_to_target(*run.ledger.local_accuracy(), line["target"], line["share"])
        assert math.isnan(line["rounds"]) if rounds is None else line["rounds"] == rounds
    assert reached[reached["target"] == 1.0]["rounds"].isna().all()  # nobody is above 100 %


def test_rows_are_compared_with_the_baseline_seed_by_seed(study: Study):
    table = study.metrics.pivot(index="seed", columns="row", values="accuracy")
    lines = study.compared[study.compared["measure"] == "accuracy"].set_index("row")
    assert lines.loc["FedAvg", "verdict"] == "baseline"
    for row in NAMES[1:]:
        differences = table[row] - table["FedAvg"]
        line = lines.loc[row]
        assert line["difference"] == pytest.approx(differences.mean())
        assert differences.min() - 1e-9 <= line["low"] <= line["high"] <= differences.max() + 1e-9
        assert (line["seeds"], line["better"]) == (2, "higher")
        assert line["p_holm"] >= line["p"]


def test_a_target_that_no_row_reaches_shows_no_difference(study: Study):
    rounds = study.compared[(study.compared["measure"] == "rounds") & (study.compared["target"] == 1.0)]
    assert set(rounds["mean"]) == {6.0}
    assert set(rounds["censored"]) == {2}
    assert set(rounds[rounds["row"] != "FedAvg"]["verdict"]) == {"not reached"}


def test_the_mean_over_shares_is_not_reached_only_where_no_share_is(study: Study):
    folder = study.folder
    lowest = Study(folder, small_plan(targets=[0.5], shares=[0.125, 1.0]), study.runs, {})
    mean = lowest.compared[(lowest.compared["measure"] == "rounds") & lowest.compared["share"].isna()].set_index("row")
    cells = lowest.reached.groupby("row")["rounds"].apply(lambda rounds: rounds.isna().all())
    assert not cells["LD > DS"]
    assert mean.loc["LD > DS", "verdict"] != "not reached"


def test_a_row_that_never_learns_saves_no_rounds(study: Study):
    rounds = study.compared[(study.compared["measure"] == "rounds") & (study.compared["target"] == 0.5)]
    still = rounds[(rounds["row"] == "still MW") & rounds["share"].isna()].iloc[0]
    assert still["difference"] > 0  # it needs more: the restricted mean of a censored row is the horizon
    assert still["mean"] == 6.0


def test_curves_have_every_evaluated_round(study: Study):
    curve = study.curves[(study.curves["row"] == "LD > DS") & (study.curves["seed"] == 4)]
    assert list(curve["round"]) == [1, 2, 3, 4, 5, 6]
    assert curve["accuracy"].iloc[-1] == study.run("LD > DS", 4).accuracy


def test_events_are_those_of_all_runs(study: Study):
    assert set(study.events["row"]) <= set(NAMES)
    assert (study.events[study.events["row"] == "m2f"]["kind"] == "initial").any()


@pytest.fixture
def unfinished(study: Study, tmp_path: Path) -> Path:
    folder = tmp_path / "unfinished"
    shutil.copytree(study.folder, folder)
    (folder / "runs/ld-ds-seed3/model.safetensors").unlink()
    shutil.rmtree(folder / "runs/m2f-seed4")
    return folder


def test_an_unfinished_run_is_said_to_be_one_and_does_not_count(unfinished: Path):
    study = Study.load(unfinished)
    assert study.unfinished == {"LD > DS, seed 3": 6, "m2f, seed 4": 0}
    assert repr(study) == "<Study small: 5 rows x 2 seeds, 8 of 10 runs finished>"
    seeds = study.compared[study.compared["measure"] == "accuracy"].set_index("row")["seeds"]
    assert (seeds["LD > DS"], seeds["m2f"], seeds["still MW"]) == (1, 1, 2)
    assert not study.metrics.set_index(["row", "seed"]).loc[("LD > DS", 3), "finished"]
    assert "LD &gt; DS, seed 3 (6 of 6 rounds)" in study._repr_html_()
    verdicts = study.compared[study.compared["measure"] == "accuracy"].set_index("row")["verdict"]
    assert verdicts["m2f"] == verdicts["LD > DS"] == "too few seeds"


def test_a_study_in_which_nothing_is_done_yet(tmp_path: Path):
    write_plan(small_plan(), tmp_path)
    study = Study.load(tmp_path)
    assert len(study.unfinished) == 10
    assert len(study.metrics) == len(study.reached) == len(study.curves) == len(study.events) == 0
    assert set(study.compared["seeds"]) <= {0}
    assert "0 of 6 rounds" in study._repr_html_()


def test_a_folder_that_is_not_a_study(tmp_path: Path, study: Study):
    for folder in (tmp_path, tmp_path / "nowhere", study.runs[0].folder):
        with pytest.raises(FolderError, match="no study in"):
            Study.load(folder)


def test_a_run_that_the_study_lacks(study: Study):
    with pytest.raises(UserError, match=r"unknown run of the study 'FedAvg, seed 9'.*valid: FedAvg, seed 3"):
        study.run("FedAvg", 9)


def test_names_are_shown_as_text_in_a_notebook(study: Study):
    assert "still &amp; 100% _FedAvg_" in study._repr_html_()


def test_the_frames_of_a_run(study: Study):
    run: Run = study.run("LD > DS", 3)
    rounds, clients, weights = (run.frame(name) for name in ("rounds", "clients", "weights"))
    assert list(rounds["round"]) == [1, 2, 3, 4, 5, 6]
    assert rounds["accuracy"].iloc[-1] == run.accuracy
    assert rounds["priority"].iloc[0] == "LD > DS"
    assert rounds["seconds"].iloc[0] == pytest.approx(rounds.filter(like="seconds ").iloc[0].sum())
    assert len(clients) == 6 * 8
    assert clients["name"].iloc[1] == "<b>client 1</b>"
    assert (clients["correct"] / clients["size"] == clients["accuracy"]).all()
    assert weights.groupby("round")["weight"].sum().to_list() == pytest.approx([1.0] * 6)
    assert weights["criterion LD"].iloc[0] == run.explain(1)[0].criteria["LD"]
    audits = run.frame("audits")
    assert set(audits["objective"]) == {"accuracy", "balanced_accuracy"}
    assert list(run.frame("rewards").columns[:3]) == ["round", "client", "name"]
    assert len(run.frame("rewards")) == len(run.frame("candidates")) == 0


def test_the_rewards_of_a_run(study: Study):
    rewards = study.run("m2f", 3).frame("rewards")
    assert len(rewards)
    assert rewards["accepted"].isin([True, False]).all()
    assert study.run("m2f", 3).frame("events")["kind"].iloc[0] == "initial"


def test_an_unknown_frame_names_those_there_are(study: Study):
    with pytest.raises(UserError, match=r"unknown frame of a run 'weight' .did you mean 'weights'"):
        study.run("m2f", 3).frame("weight")
