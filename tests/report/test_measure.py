"""`run.measure`: runs, studies, pages, searches and stopping by AUC or MAE; and what federation is worth."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from helpers import CommandLine, one_line
from report_runs import Page

from fedmerit import Federation, Run, Study, Task, compare, fedavg, federate, load_config, pooled, run_config
from fedmerit.store.model_files import read_model
from fedmerit.study.plan import load_plan
from fedmerit.tasks.registry import make_task

NAMES = ("north", "south", "east", "west")


def write_hospitals(path: Path, shift: float = -3.4) -> None:
    """About 5 % of the rows died; blood pressure says who, as far as anybody can know; west has no death at all."""
    rng = np.random.default_rng(5)
    rows = []
    for number, name in enumerate(NAMES):
        pressure = rng.normal(size=(90 + 30 * number, 2))
        died = rng.random(len(pressure)) < 1 / (1 + np.exp(-shift - 1.5 * pressure[:, 0]))
        stay = 20 + 5 * pressure[:, 0] + rng.normal(size=len(pressure))
        for row, (a, b) in enumerate(pressure.round(3).tolist()):
            dead = bool(died[row]) and name != "west"
            rows.append((name, a, b, "yes" if dead else "no", round(float(stay[row]), 2)))
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("hospital", "pressure", "noise", "died", "stay"), *rows])


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    """A configuration of two rounds, after which the model still answers "no" to everybody."""
    write_hospitals(tmp_path / "hospitals.csv")
    path = tmp_path / "hospitals.toml"
    path.write_text(
        f'[task]\ndata = "table:{tmp_path}/hospitals.csv"\nlabel = "died"\nclient = "hospital"\n'
        'features = ["pressure", "noise"]\nvalidation = 0.2\n'
        "[train]\nlr = 0.05\nepochs = 2\n[run]\nrounds = 2\nfraction = 1.0\nworkers = 1\n"
    )
    return path


def test_a_model_that_answers_no_to_everybody_is_named(cli: CommandLine, toml: Path, tmp_path: Path):
    answer = cli("run", toml, "--out", tmp_path / "run")
    assert answer.code == 0
    rows = sum(size for *_, size in Run.load(tmp_path / "run").ledger.evaluations(after=1))
    warning = f"WARNING: the model predicts 'no' for all {rows} test rows"
    assert warning in answer.out
    assert "training loss 0." in answer.out
    assert ", validation loss 0." in answer.out
    assert "over 3 of 4 clients, accuracy 0.9" in answer.out  # west has one class
    text = " ".join(cli("report", tmp_path / "run", "--text").out.split())
    assert warning in text
    assert "training loss" in text
    assert "4 clients: AUC 0." in text
    cli("report", tmp_path / "run", "--out", tmp_path / "page.html")
    data = Page(tmp_path / "page.html").data
    (row,) = data["rows"]
    assert data["measure"] == {"name": "auc", "label": "AUC", "lower": False, "format": ""}
    assert row["measured"] == [3]
    assert warning.removeprefix("WARNING: ") in row["constant"]["text"]
    assert row["losses"]["training_loss"][0] > 0


def test_the_measure_is_the_mean_over_test_rows_where_it_is_defined(toml: Path, tmp_path: Path):
    run = run_config(load_config(toml), tmp_path / "run")
    sizes = {client: size for index, client, _, size in run.ledger.evaluations() if index == 2}
    areas = {client: value for _, client, name, value in run.ledger.audits(2) if name == "auc" and value is not None}
    assert sorted(areas) == [0, 1, 2]
    mean = sum(areas[client] * sizes[client] for client in areas) / sum(sizes[client] for client in areas)
    assert run.measure == "auc"
    assert run.value == pytest.approx(mean, abs=1e-12)
    assert repr(run) == f"<Run: 2 rounds, 4 clients, AUC {mean:.4f}>"


def test_a_study_on_a_table_says_what_federation_is_worth(cli: CommandLine, toml: Path, tmp_path: Path):
    plan = tmp_path / "study.toml"
    plan.write_text(
        'seeds = 2\ntargets = [0.7]\nbase = "hospitals.toml"\n[[row]]\nname = "FedAvg"\nrecipe = "fedavg"\n'
    )
    answer = cli("compare", plan, "--out", tmp_path / "study", "--jobs", "2")
    flat = " ".join(answer.out.split())
    assert answer.code == 0
    assert "study: AUC after 2 rounds, mean over 2 seeds; paired difference to FedAvg" in flat
    assert "WARNING: FedAvg, in 2 of 2 seeds: the model predicts 'no' for all" in flat
    assert "study: what federation is worth, by AUC" in flat
    assert "AUC is defined at 3 of 4 clients" in flat
    study = Study.load(tmp_path / "study")
    assert study.rows == ["FedAvg", "alone", "pooled"]
    worth = study.worth.set_index(["against", "client"])
    metrics = study.metrics.set_index(["row", "seed"])["auc"]
    gains = [metrics["FedAvg", seed] - metrics["alone", seed] for seed in (1, 2)]
    assert worth.loc[("alone", "all clients"), "difference"] == pytest.approx(np.mean(gains), abs=1e-9)
    ledgers = {(row, seed): study.run(row, seed).ledger for row in ("FedAvg", "pooled") for seed in (1, 2)}
    north = {key: ledger.local()[1][-1][ledger.names().index("north")] for key, ledger in ledgers.items()}
    expected = np.mean([north["FedAvg", seed] - north["pooled", seed] for seed in (1, 2)])
    assert worth.loc[("pooled", "north"), "difference"] == pytest.approx(expected, abs=1e-9)
    assert np.isnan(worth.loc[("alone", "west"), "difference"])
    told = cli("report", tmp_path / "study", "--json").json
    assert told["measure"] == "auc"
    assert len(told["worth"]) == 2 * 5
    cli("export", tmp_path / "study", "--format", "latex", "--table", "compared", "--out", tmp_path / "t.tex")
    assert "row & AUC & difference" in (tmp_path / "t.tex").read_text()
    cli("report", tmp_path / "study", "--out", tmp_path / "page.html")
    data = Page(tmp_path / "page.html").data
    assert data["verdict"]["text"].endswith(" AUC")
    assert data["worth"][0]["rows"][0][0] == "all clients"
    assert all("predicts" in row["constant"]["text"] for row in data["rows"] if row["label"] == "FedAvg")


def test_all_rows_of_a_study_have_one_measure(toml: Path, tmp_path: Path):
    plan = tmp_path / "study.toml"
    attack = 'attack = [{ kind = "label-flip", share = 0.5 }]\n'  # half of the labels become "yes": accuracy alone
    plan.write_text(f'seeds = [3]\n{attack}base = "hospitals.toml"\n[[row]]\nname = "FedAvg"\nrecipe = "fedavg"\n')
    study = compare(load_plan(plan), tmp_path / "study", jobs=2)
    assert [study.run(row, 3).measure for row in study.rows] == ["auc", "auc"]
    alone = run_config(study.runs[1].config, tmp_path / "alone")
    assert alone.measure == "accuracy"


def test_reference_rows_can_be_left_out_and_asked_for(toml: Path, tmp_path: Path):
    rows = '[[row]]\nname = "FedAvg"\nrecipe = "fedavg"\n'
    plan = tmp_path / "study.toml"
    plan.write_text(f'references = false\nbase = "hospitals.toml"\n{rows}')
    assert [row.name for row in load_plan(plan).rows] == ["FedAvg"]
    plan.write_text(f"references = true\n{rows}")
    assert [row.name for row in load_plan(plan).rows] == ["FedAvg", "alone", "pooled"]
    plan.write_text(rows)
    assert [row.name for row in load_plan(plan).rows] == ["FedAvg"]  # digits are no table


def test_pooled_trains_as_one_client_with_all_rows(toml: Path):
    task = make_task(load_config(toml, ["run.seed=3"]))
    run = federate(task, pooled(), rounds=2, fraction=0.3, seed=3)
    data = task.federation
    tests = {"everybody": (data.test.x, data.test.y)}
    one = Federation.from_clients({"everybody": (data.train.x, data.train.y)}, test=tests, classes=2)
    together = federate(Task(one, task.learner), fedavg(), rounds=2, fraction=1.0, seed=3)
    assert run.model.tobytes() == together.model.tobytes()
    assert [client.id for client in run.explain(2)] == [0]
    tested = federate(task, fedavg(), rounds=2, fraction=1.0, seed=3)
    assert [row[3] for row in run.ledger.evaluations()] == [row[3] for row in tested.ledger.evaluations()]


def test_numbers_are_judged_by_mae_and_lower_is_better(cli: CommandLine, toml: Path, tmp_path: Path):
    stay = ("--set", "task.label=stay", "--set", "task.target=number", "--set", "task.tolerance=1.0")
    # With this learning rate the run stops early, and its best round on test rows is neither the first nor the last.
    slow = (*stay, "--set", "run.rounds=8", "--set", "run.stop={patience=2}", "--set", "train.lr=0.3")
    answer = cli("run", toml, *slow, "--out", tmp_path / "run")
    assert answer.code == 0
    ledger = Run.load(tmp_path / "run").ledger
    values, validated = [row["value"] for row in ledger.rounds()], ledger.validated()
    assert ledger.measure == "mae"
    assert f"MAE {values[-1]:.4f}, accuracy" in answer.out
    stop = len(validated)
    assert 3 <= stop < 8
    assert min(validated[-2:]) >= min(validated[:-2])
    assert all(min(validated[i - 2 : i]) < min(validated[: i - 2]) for i in range(3, stop))
    best = read_model(tmp_path / "run" / "best.safetensors")
    assert values[best[1] - 1] == min(values)
    told = cli("report", tmp_path / "run", "--json", "--target", "15").json
    assert told["best"]["value"] == min(values)
    reached = [index for index, row in enumerate(ledger.local()[1], 1) if (row < 15).sum() >= 4 * 0.9]
    assert told["rounds_to_target"]["15.0"]["0.9"] == (reached[0] if reached else None)


def test_a_worse_error_is_a_worse_verdict(toml: Path, tmp_path: Path):
    plan = tmp_path / "study.toml"
    rows = '[[row]]\nname = "trained"\n[[row]]\nname = "hardly"\ntrain = { lr = 1e-6 }\n'
    plan.write_text(f'seeds = 5\nbase = "hospitals.toml"\n{rows}')
    changes = ["task.label=stay", "task.target=number", "task.tolerance=1.0", "task.model=linear", "run.rounds=1"]
    study = compare(load_plan(plan, changes), tmp_path / "study", jobs=2)
    lines = study.compared.set_index(["row", "measure"])
    assert study.measure == "mae"
    assert study.targets == ()
    assert lines.loc[("hardly", "mae"), "difference"] > 0
    assert lines.loc[("hardly", "mae"), "verdict"] == "leans worse"
    assert lines.loc[("hardly", "p10"), "better"] == lines.loc[("hardly", "worst"), "better"] == "lower"
    page = study.report(tmp_path / "page.html")
    assert Page(page).data["verdict"]["text"].startswith("hardly seems worse than trained by")


def test_a_search_judges_by_the_measure_if_it_is_set(toml: Path, tmp_path: Path):
    search = ["recipe={name='device_aware',criteria=['DS','LD'],search={adjust_on='test',tolerance=0}}"]
    chosen = {}
    for name, changes in {"paper": [], "auc": ["run.measure=auc"]}.items():
        run = run_config(load_config(toml, [*search, *changes]), tmp_path / name)
        results = run.ledger.candidates(1)
        chosen[name] = next(one.quality for one in results if one.chosen), run.ledger.rounds()[0]
    quality, first = chosen["auc"]
    assert quality == pytest.approx(first["value"], abs=1e-9)
    assert first["value"] != first["accuracy"]
    quality, first = chosen["paper"]
    assert quality == pytest.approx(first["accuracy"], abs=1e-9)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (("run.measure=acc",), "unknown objective 'acc'"),
        (("run.measure=mae",), "objective mae is for tasks that predict number"),
        (("recipe=pooled", "task.attack={kind='scale',share=0.5}"), "pooled: all rows are in one place"),
    ],
)
def test_mistakes_are_one_line(cli: CommandLine, toml: Path, tmp_path: Path, changes: tuple[str, ...], message: str):
    options = [part for change in changes for part in ("--set", change)]
    answer = cli("run", toml, *options, "--out", tmp_path / "run")
    assert message in one_line(answer._replace(out=""))  # questions about the data come first


def test_balanced_classes_are_judged_by_accuracy(toml: Path, tmp_path: Path):
    write_hospitals(tmp_path / "hospitals.csv", shift=0.6)
    run = run_config(load_config(toml), tmp_path / "run")
    assert run.measure == "accuracy"
    assert json.loads(run.ledger.meta()["config"])["run"]["measure"] is None
