"""The model card: its sections, figures that can be computed again, and what it leaves out."""

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers import CommandLine, one_line
from test_report_data import PRIVATE

from fedmerit import Run, run_config
from fedmerit.config.schema import load_config, make_config
from fedmerit.report.card import proportion
from fedmerit.tasks.registry import make_task

SECTIONS = ["Model details", "Intended use", "Data", "Measures", "Weights", "Privacy", "Limitations"]
RUN = {"rounds": 2, "fraction": 1.0, "workers": 1, "audit": ["auc", "worst_group:sex"]}


def write_table(path: Path) -> pd.DataFrame:
    random = np.random.default_rng(4)
    age = random.normal(60, 12, 240)
    columns = {
        "hospital": np.repeat(["<b>north</b>", "south | east", "west_1"], [120, 80, 40]),
        "age": age.round(1),
        "sex": random.choice(["female", "male"], 240),
        "died": np.where(age + random.normal(0, 6, 240) > 66, "yes", "no"),
    }
    frame = pd.DataFrame(columns)
    frame.to_csv(path, index=False)
    return frame


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("card")
    write_table(home / "h.csv")
    task = {"data": f"table:{home / 'h.csv'}", "client": "hospital", "label": "died", "attributes": ["sex"]}
    run_config(make_config({"task": task | {"test": 0.3}, "run": RUN}), home / "run").ledger.close()
    return home / "run"


def written(cli: CommandLine, run: Path, out: Path) -> str:
    answer = cli("export", run, "--card", out)
    assert answer.code == 0, answer.err
    return out.read_text()


def test_the_card_has_its_sections_and_figures_that_hold(cli: CommandLine, folder: Path, tmp_path: Path) -> None:
    text = written(cli, folder, tmp_path / "card.md")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == SECTIONS
    run = Run.load(folder)
    assert run.ledger.head() in text
    assert "```" not in text
    assert "predicts died (no, yes) from age, sex, hospital" in text
    tested = [(right, rows) for number, _, right, rows in run.ledger.evaluations() if number == 2]
    assert f"| accuracy | {proportion(sum(r for r, _ in tested), sum(n for _, n in tested))} |" in text
    row = next(line for line in text.splitlines() if line.startswith("| west") and "(" in line)
    assert f" {proportion(*tested[2])} |" in row
    counts = re.findall(r"^\| (.+?) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", text, re.MULTILINE)
    assert [(int(train), int(test)) for _, train, test, *_ in counts] == [(84, 36), (56, 24), (28, 12)]
    assert all(int(no) + int(yes) == 100 for *_, no, yes in counts)
    for client, by_label in zip(counts, _shares(folder), strict=True):
        assert [int(share) for share in client[3:]] == by_label
    groups = re.findall(r"^\| sex: (\w+) \| (\d+) \| ([\d.]+) \(", text, re.MULTILINE)
    right = sum(int(rows) * float(share) for _, rows, share in groups)
    header = next(line for line in text.splitlines() if line.startswith("| client | ") and "auc" in line)
    place = header.split(" | ").index("auc")
    intervals = [
        re.findall(r"[\d.]+", line.split(" | ")[place]) for line in text.splitlines() if line[:7] == "| west\\"
    ]
    value, low, high = map(float, next(numbers for numbers in intervals if len(numbers) == 3))
    audited = {client: auc for _, client, name, auc in run.ledger.audits(2) if name == "auc"}
    assert value == pytest.approx(audited[2], abs=6e-4)
    assert low < value <= high <= 1
    assert [name for name, *_ in groups] == ["female", "male"]
    assert right == pytest.approx(sum(r for r, _ in tested), abs=0.1)
    assert run.why().splitlines()[0].partition(",")[0].replace("|", "\\|").replace("<", "\\<") in text.replace(
        "\\>", ">"
    )


def _shares(folder: Path) -> list[list[int]]:
    """Shares of the labels in training rows, by the data themselves."""
    train = make_task(load_config(folder / "config.toml")).federation.train
    return [
        [round(100 * float((train.y[train.rows(client)] == label).mean())) for label in (0, 1)] for client in range(3)
    ]


def test_wilson_intervals_solve_their_equation() -> None:
    z = 1.959964
    for right, rows in [(0, 5), (3, 10), (90, 100)]:
        share, low, high = map(float, re.findall(r"[\d.]+", proportion(right, rows)))
        for bound in (low, high):  # (p - bound)^2 = z^2 bound (1 - bound) / n
            assert (share - bound) ** 2 == pytest.approx(z**2 * bound * (1 - bound) / rows, abs=2e-3)
        assert low <= share <= high


def test_the_page_escapes_names_and_needs_no_network(cli: CommandLine, folder: Path, tmp_path: Path) -> None:
    page = written(cli, folder, tmp_path / "card.html")
    assert re.findall(r"<h2>(.*?)</h2>", page) == SECTIONS
    assert "&lt;b&gt;north&lt;/b&gt;" in page
    assert "<b>" not in page
    assert not re.search(r"src=|href=|<script|url\(", page)


def test_without_its_data_the_card_says_what_is_missing(cli: CommandLine, tmp_path: Path) -> None:
    write_table(tmp_path / "h.csv")
    task = {"data": f"table:{tmp_path / 'h.csv'}", "client": "hospital", "label": "died", "attributes": ["sex"]}
    run_config(make_config({"task": task, "run": RUN}), tmp_path / "run").ledger.close()
    frame = pd.read_csv(tmp_path / "h.csv")
    frame["age"] += 1
    frame.to_csv(tmp_path / "h.csv", index=False)  # other data than those of the run
    changed = written(cli, tmp_path / "run", tmp_path / "changed.md")
    (tmp_path / "h.csv").unlink()
    gone = written(cli, tmp_path / "run", tmp_path / "gone.md")
    for text in (changed, gone):
        assert "The data were not at hand" in text
        assert "yes (%)" not in text
        assert "sex: female" not in text
        assert "| west\\_1 | 32 | 8 |" in text


def test_a_private_card_has_no_figures_of_clients(cli: CommandLine, tmp_path: Path) -> None:
    run_config(make_config(PRIVATE), tmp_path / "run").ledger.close()
    text = written(cli, tmp_path / "run", tmp_path / "card.md")
    assert text.count("Left out because the run is private") == 3
    assert re.search(r"epsilon [\d.]+ and delta 0.001", text)
    assert "guarantee is void" in text
    assert "|" not in text
    assert "accuracy |" not in text


def test_the_card_imports_no_module_that_the_folder_names(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "code"
    home.mkdir()
    (home / "strange_task.py").write_text(
        "from dataclasses import replace\nfrom fedmerit.tasks.registry import find_task\n"
        "TASK = replace(find_task('digits'), name='strange')\n"
    )
    monkeypatch.syspath_prepend(str(home))
    task: dict[str, Any] = {"data": "strange_task:TASK", "clients": 3, "model": "digits-linear"}
    run_config(make_config({"task": task, "run": RUN | {"audit": []}}), tmp_path / "run").ledger.close()
    del sys.modules["strange_task"]
    assert "The data were not at hand" in written(cli, tmp_path / "run", tmp_path / "card.md")
    assert "strange_task" not in sys.modules


def test_mistakes_are_one_line(cli: CommandLine, folder: Path, tmp_path: Path) -> None:
    assert "one of --out FILE" in one_line(cli("export", folder, "--card", tmp_path / "a", "--onnx", tmp_path / "b"))
    (tmp_path / "card.md").write_text("mine")
    assert "--force" in one_line(cli("export", folder, "--card", tmp_path / "card.md"))
