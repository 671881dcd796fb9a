"""The files of deploy/: the processes of the kits in containers, each hospital with its own kit and rows."""

import re
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")
DEPLOY = Path(__file__).parents[2] / "deploy"


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    return dict(yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"])


def test_containers_start_the_processes_of_the_kits(services: dict[str, Any]):
    commands = {name: one["command"] for name, one in services.items()}
    assert commands["superlink"] == ["python", "-m", "fedmerit.flower.superlink", "--kit=/kit"]
    assert commands["superexec"] == ["python", "-m", "fedmerit.flower.superexec", "--kit=/kit"]
    for number in (1, 2, 3):
        assert commands[f"hospital{number}"] == ["fedmerit", "flower", "node", "--kit=/kit"]


def test_each_hospital_has_its_own_kit_and_rows_and_nobody_else_has_them(services: dict[str, Any]):
    for number in (1, 2, 3):
        own = {f"./kits/hospital-{number}:/kit:ro", f"./hospital{number}:/data:ro"}
        holders = [name for name, one in services.items() if own & set(one["volumes"])]
        assert holders == [f"hospital{number}"]
        assert own <= set(services[holders[0]]["volumes"])


def test_nothing_runs_as_root_or_listens_to_the_world(services: dict[str, Any]):
    assert re.search(r"^USER 10001$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    for one in services.values():
        assert one["cap_drop"] == ["ALL"]
        assert all(port.startswith("127.0.0.1:") for port in one.get("ports", ()))
