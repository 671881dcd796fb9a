"""The files of deploy/: the same processes in containers and units, each hospital with its own folder and name."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from flwr.common.config import parse_config_args

yaml = pytest.importorskip("yaml")
DEPLOY = Path(__file__).parents[2] / "deploy"
PROCESSES = ("fedmerit.flower.superlink", "flower-superexec", "flower-supernode")


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    return dict(yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"])


def options(command: list[str]) -> set[str]:
    return {word.partition("=")[0] for word in command if word.startswith("--")}


def unit_command(name: str) -> list[str]:
    unit = (DEPLOY / "systemd" / f"fedmerit-{re.split('[-.]', name)[-1]}.service").read_text()
    return shlex.split(re.findall(r"^ExecStart=\S+ (.*)$", unit, re.MULTILINE)[0])


@pytest.mark.parametrize("process", PROCESSES)
def test_units_and_containers_start_the_same_processes(process: str, services: dict[str, Any]):
    commands = [one["command"] for one in services.values() if process in one["command"]]
    assert commands
    assert all(options(command) == options(unit_command(process)) for command in commands)
    assert not any("insecure" in word for command in commands for word in command)


def test_each_hospital_has_its_own_rows_and_nobody_else_has_them(services: dict[str, Any]):
    hospitals = {name: one for name, one in services.items() if name.startswith("hospital")}
    told = []
    for name, one in hospitals.items():
        (config,) = [word.partition("=")[2] for word in one["command"] if word.startswith("--node-config")]
        told.append(parse_config_args([config]))
        assert f"./{name}:/data:ro" in one["volumes"]
        others = [volume for other, that in services.items() if other != name for volume in that["volumes"]]
        assert not any(volume.startswith(f"./{name}:") for volume in others)
    assert [one["name"] for one in told] == ["Hospital 1", "Hospital 2", "Hospital 3"]
    assert all(one["data"] == "/data/rows.parquet" for one in told)


def test_nothing_runs_as_root_or_listens_to_the_world(services: dict[str, Any]):
    assert re.search(r"^USER 10001$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    for one in services.values():
        assert one["cap_drop"] == ["ALL"]
        assert all(port.startswith("127.0.0.1:") for port in one.get("ports", ()))
    for path in (DEPLOY / "systemd").glob("*.service"):
        assert "\nUser=fedmerit\n" in path.read_text()


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
