"""doctor, renew and logs as JSON: what somebody who operates a federation sees."""

import json
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedmerit.cli.app import app
from fedmerit.engine.logs import LOGGERS, VARIABLE
from fedmerit.errors import ConfigError
from fedmerit.flower.keys import make_authority, sign_server, valid_until
from fedmerit.report import doctor


def call(*words: str) -> Any:
    return CliRunner().invoke(app, list(words), catch_exceptions=False)


@pytest.fixture(autouse=True)
def logs_as_before(monkeypatch: pytest.MonkeyPatch):
    kept = {name: (list(logging.getLogger(name).handlers), logging.getLogger(name).propagate) for name in LOGGERS}
    monkeypatch.setenv(VARIABLE, "")
    yield
    for name, (handlers, propagate) in kept.items():
        logging.getLogger(name).handlers[:] = handlers
        logging.getLogger(name).propagate = propagate


def certified(folder: Path) -> Path:
    make_authority(folder)
    sign_server(folder, folder, "server.example")
    return folder / "server.key"


def test_a_well_machine_and_its_certificates(tmp_path: Path):
    certified(tmp_path)
    config = Path(__file__).parents[2] / "examples/digits.toml"
    told = call("doctor", str(config), "--json")
    found = {one["check"]: one for one in json.loads(told.stdout)["checks"]}
    assert told.exit_code == 0, told.stdout
    assert {"versions", "processor", "data"} <= set(found)
    checks = [found.check for found in doctor.check_certificates(tmp_path)]
    assert checks == ["ca.crt", "server.pem", "server.key", "server.key"]
    assert found["data"]["text"].startswith("digits: 20 clients")


def test_what_is_wrong_is_told_with_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    one, other = certified(tmp_path / "a"), certified(tmp_path / "b")
    one.write_bytes(other.read_bytes())
    one.chmod(0o644)
    texts = [found.text for found in doctor.check_certificates(tmp_path / "a") if found.status == "failed"]
    assert texts[0].endswith(f"chmod 600 {one}")
    assert "is not the key of" in texts[1]
    sign_server(tmp_path / "a", tmp_path / "a", "server.example")
    assert {found.status for found in doctor.check_certificates(tmp_path / "a")} == {"ok"}
    ends = valid_until(tmp_path / "a" / "server.pem")
    for days, status in ((3, "warning"), (-3, "failed")):
        then = ends - timedelta(days=days)

        class Clock(datetime):
            @classmethod
            def now(cls, zone: Any = None) -> datetime:
                return then  # noqa: B023 - read before the loop goes on

        with monkeypatch.context() as patch:
            patch.setattr(doctor, "datetime", Clock)
            found = {each.check: each for each in doctor.check_certificates(tmp_path / "a")}
        assert found["server.pem"].status == status
        assert found["server.pem"].text.endswith("call `fedmerit flower provision` again with the same --out")
    assert ends > datetime.now(UTC)
    told = call("doctor", "--kit", str(tmp_path / "nowhere"), "--superlink", "127.0.0.1:1", "--json")
    assert told.exit_code == 1
    failed = {one["check"]: one["text"] for one in json.loads(told.stdout)["checks"] if one["status"] == "failed"}
    assert "is not a kit" in failed["kit"]
    assert failed["superlink"].startswith("127.0.0.1:1 does not answer in plain text ([Errno 111] Connection refused)")


def test_logs_as_json(tmp_path: Path):
    small = ["--set", "run.rounds=2", "--set", "task.clients=4", "--set", "run.workers=1"]
    config = str(Path(__file__).parents[2] / "examples/digits.toml")
    told = call("--log-format", "json", "run", config, "--out", str(tmp_path / "run"), *small)
    lines = [json.loads(line) for line in told.stderr.splitlines()]
    assert told.stdout == ""
    rounds = [line for line in lines if line["message"] == "round"]
    assert [line["round"] for line in rounds] == [1, 2]
    assert all({"time", "level", "logger", "process", "run", "accuracy", "seconds"} <= line.keys() for line in rounds)
    with pytest.raises(ConfigError, match="must be text or json"):
        call("--log-format", "xml", "list", "tasks")
