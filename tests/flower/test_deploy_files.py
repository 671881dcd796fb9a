"""The files of deploy/: the same processes in containers and units, each hospital with its own folder and name."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from flwr.common.config import parse_config_args

yaml = pytest.importorskip("yaml")
DEPLOY = Path(__file__).parents[2] / "deploy"
PROCESSES = ("flower-superlink", "flower-superexec", "flower-supernode")


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    return dict(yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"])


def options(command: list[str]) -> set[str]:
    return {word.partition("=")[0] for word in command if word.startswith("--")}


def unit_command(name: str) -> list[str]:
    unit = (DEPLOY / "systemd" / f"{name.replace('flower', 'fedmerit')}.service").read_text()
    return shlex.split(re.findall(r"^ExecStart=\S+ (.*)$", unit, re.MULTILINE)[0])


@pytest.mark.parametrize("process", PROCESSES)
def test_units_and_containers_start_the_same_processes(process: str, services: dict[str, Any]):
    commands = [one["command"] for one in services.values() if one["command"][0] == process]
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
    assert re.search(r"^USER fedmerit$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    for one in services.values():
        assert one["cap_drop"] == ["ALL"]
        assert all(port.startswith("127.0.0.1:") for port in one.get("ports", ()))
    for path in (DEPLOY / "systemd").glob("*.service"):
        assert "\nUser=fedmerit\n" in path.read_text()
