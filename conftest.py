"""What all tests share: a thread each, patience on a busy machine, the data folder, the command line."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path

# before torch and BLAS are loaded: two test processes with a pool of two threads each wait for one another on two cores
os.environ["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", "1")

import pytest
from helpers import CommandLine
from hypothesis import HealthCheck, settings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # typer < 0.21 imports names that click 8.5 deprecates
    import typer  # noqa: F401

settings.register_profile(
    "busy", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("deep", settings.get_profile("busy"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "busy"))


@pytest.fixture(scope="session", autouse=True)
def state_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep the record of user-defined parts apart from that of the person who runs the tests."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture
def data_folder() -> Callable[[str], Path]:
    """The folder of a data set below FEDMERIT_DATA; the test is skipped where it is not there."""

    def find(name: str) -> Path:
        root = os.environ.get("FEDMERIT_DATA")
        if not root:
            pytest.skip(f"FEDMERIT_DATA is not set: no data set {name!r}")
        folder = Path(root) / name
        if not folder.is_dir():
            pytest.skip(f"FEDMERIT_DATA holds no data set {name!r}")
        return folder

    return find


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """The command line, called in this process."""
    return CommandLine(monkeypatch, capsys)


LONGEST = ("test_deployment", "test_secure", "test_simulation", "test_resume")
"""Files whose tests wait for processes: begun first, so that no worker is left with them at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files of LONGEST."""
    items.sort(key=lambda item: item.path.stem not in LONGEST)
