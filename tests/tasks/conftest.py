"""Fixtures of the task tests: a data folder of their own."""

from pathlib import Path

import pytest


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty FEDMERIT_DATA."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("FEDMERIT_DATA", str(folder))
    return folder
