"""The plan of a small study: rows that learn, rows that stand still, and one without a common model."""

from typing import Any

from fedmerit.study.plan import Plan, make_plan

BASE: dict[str, Any] = {
    "task": {"data": "study_task:SMALL"},
    "train": {"lr": 0.5},
    "run": {"rounds": 6, "fraction": 0.5, "audit": ["accuracy", "balanced_accuracy"]},
}
STILL = {"lr": 1e-30}
"""So small a step that the last model equals the first."""

ROWS: list[dict[str, Any]] = [
    {"name": "FedAvg", "recipe": {"name": "fedavg"}},
    {"name": "LD > DS", "recipe": {"name": "prioritized", "criteria": "LD > DS", "normalise": "max"}},
    {"name": "still & 100% _FedAvg_", "recipe": {"name": "fedavg"}, "train": STILL},
    {"name": "still MW", "recipe": {"name": "prioritized", "criteria": "MW"}, "train": STILL},
    {"name": "m2f", "recipe": {"name": "m2f"}},
]


def small_plan(**changes: Any) -> Plan:
    plan = {"name": "small", "seeds": [3, 4], "targets": [0.5, 1.0], "shares": [0.5, 1.0], "base": BASE, "row": ROWS}
    return make_plan(plan | changes)
