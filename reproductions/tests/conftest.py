"""The command of the reproductions in place of the package's."""

from __future__ import annotations

import pytest
from helpers import CommandLine


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """`python -m reproductions`, called in this process."""
    return CommandLine(monkeypatch, capsys, "reproductions.__main__")
