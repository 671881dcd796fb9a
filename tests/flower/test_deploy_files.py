"""The files of deploy/: the processes of the kits in containers, each hospital with its own kit and rows."""

import re
import shutil
import subprocess
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


def linted(*command: str) -> str:
    """What a linter says, which must be content; the test is skipped where it is not installed."""
    program = shutil.which(command[0])
    if program is None:
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run([program, *command[1:]], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_hadolint_has_nothing_to_say_of_the_dockerfile():
    assert linted("hadolint", str(DEPLOY / "Dockerfile")) == ""


def test_compose_takes_its_file(services: dict[str, Any]):
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("docker compose is not installed")
    told = yaml.safe_load(linted("docker", "compose", "--file", str(DEPLOY / "compose.yaml"), "config"))
    assert set(told["services"]) == set(services)
