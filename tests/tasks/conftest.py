"""Fixtures of the task tests: a data folder and a hub cache of their own, and never the network."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["FLWR_TELEMETRY_ENABLED"] = "0"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty FEDMERIT_DATA."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("FEDMERIT_DATA", str(folder))
    return folder


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for parquet files; caches go to a folder of the test, and the hub is out of reach."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    # Both libraries read HF_HUB_OFFLINE at import, which may have been before this file was read.
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    folder = tmp_path / "hub"
    folder.mkdir()
    return folder
