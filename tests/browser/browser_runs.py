"""Real runs on the embedded digits for the browser's tests, and the names that would do harm if they were markup."""

import shutil
import sqlite3
from pathlib import Path
from typing import Any

from fedmerit import run_config
from fedmerit.config.schema import make_config

HOSTILE = (
    "<script>window.harmed = 1</script>",
    "__proto__",
    "constructor",
    "x" * 10_000,
    '<img src="x" onerror="window.harmed = 1">',
    "\u202egnp.exe \u2028two\nlines\u0000",
    '<a href="javascript:harm()">&lt;b&gt; $x^2$</a>',
    "toString",
)
CLIENTS = len(HOSTILE)
TASK = {"data": "digits", "partition": "dirichlet", "alpha": 1.0, "clients": CLIENTS, "validation": 0.2}
GROUPED = {
    "data": "digits",
    "partition": "label-draws",
    "groups": [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]],
    "size": [30, 60],
    "alpha": 20.0,
    "clients": CLIENTS,
    "validation": 0.2,
    "test": "matched",
}
TRAIN = {"lr": 0.3, "epochs": 1, "batch": 10}
SCHEDULE = {"rates": [[0.5, 2], [1.0, 2]], "epochs": [1, 3]}
ROUNDS = 4

SETTINGS: dict[str, dict[str, Any]] = {
    "searched": {"recipe": {"name": "device_aware", "criteria": ["DS", "LD", "MW"], "normalise": "max"}},
    "grouped": {
        "task": GROUPED,
        "recipe": {"name": "m2f", "criteria": ["Participation", "SimulatedComputation", "DataRatio"]},
        "run": {"schedule": SCHEDULE},
    },
    "audited": {
        "task": TASK | {"server": 100},
        "recipe": {"name": "fedval", "criteria": ["validated:accuracy"], "score": "weighted-mean"},
        "run": {"audit": ["accuracy", "balanced_accuracy"]},
    },
    **{f"plain-seed{seed}": {"run": {"seed": seed}} for seed in (1, 2, 3)},
}


def play(folder: Path) -> None:
    """All of them, in the folder."""
    for name, settings in SETTINGS.items():
        run = {"rounds": ROUNDS, "fraction": 0.75, "seed": 1, "workers": 1} | settings.get("run", {})
        recipe = settings.get("recipe", {"name": "fedavg"})
        config = {"task": settings.get("task", TASK), "train": TRAIN, "recipe": recipe, "run": run}
        run_config(make_config(config), folder / name)


def poison(run: Path, out: Path) -> Path:
    """A copy of a run whose every name and text is hostile, and one client of which was left out."""
    shutil.copytree(run, out)
    with sqlite3.connect(out / "ledger.db") as ledger:
        ledger.executemany(
            "UPDATE clients SET name = ? WHERE client = ?", [(name, i) for i, name in enumerate(HOSTILE)]
        )
        ledger.execute("INSERT INTO events VALUES (1, NULL, ?, ?)", (HOSTILE[0], HOSTILE[4]))
        ledger.execute("INSERT INTO events VALUES (2, 3, 'left-out', ?)", (HOSTILE[0],))
        ledger.execute("INSERT INTO audits VALUES (4, -1, ?, 0.5)", (HOSTILE[4],))
        ledger.execute("UPDATE candidates SET weighting = weighting || ?", (HOSTILE[4],))
        ledger.execute("UPDATE meta SET value = ? WHERE key = 'machine'", (HOSTILE[4],))
    ledger.close()
    return out
