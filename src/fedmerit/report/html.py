"""The HTML report of one or several runs."""
from __future__ import annotations
from collections.abc import Sequence
from pathlib import Path
def write_report(folders: Sequence[Path], out: Path) -> None:
    """One self-contained file."""
    out.write_text("<html></html>")
