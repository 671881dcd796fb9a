"""Export: a study's or a run's tables as CSV, Parquet, LaTeX (booktabs) or Markdown, into a new file."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path

from fedmerit.errors import ConfigError, FolderError, UnknownName
from fedmerit.store.files import check_new_file, write_new_file
from fedmerit.store.frames import FRAMES, Frame, run_frame
from fedmerit.store.run_folder import LEDGER, open_ledger
from fedmerit.study.layout import RUNS, STUDY
from fedmerit.study.study import Study
from fedmerit.study.tables import TABLES
from fedmerit.study.text import TextTable

STUDY_FRAMES = ("compared", "reached", "figures", "curves", "needed", "events")


def write_export(folder: Path, out: Path, format: str, table: str | None) -> str:
    """Write one table to a new file; the name of the table."""
    if format not in (*FRAME_FORMATS, *TEXT_FORMATS):
        raise UnknownName("format", format, (*FRAME_FORMATS, *TEXT_FORMATS))
    check_new_file(out, "another --out")
    study = is_study(folder)
    table = table or ("compared" if study else "rounds")
    if format in FRAME_FORMATS:
        frame = study_frame(folder, table) if study else _run_frame(folder, table)
        write_new_file(out, FRAME_FORMATS[format](frame), "another --out")
    elif study:
        write_new_file(out, _texts(Study.load(folder), table, TEXT_FORMATS[format]), "another --out")
    else:
        raise ConfigError(f"{format} is for the tables of a study; a run's are written as csv or parquet")
    return table


def is_study(folder: Path) -> bool:
    """Whether a folder holds a study; a folder that holds neither a study nor a run is refused."""
    study, run = (folder / STUDY).is_file(), (folder / LEDGER).is_file()
    if not study and not run:
        raise FolderError(
            f"no run and no study in {folder}: it has neither {LEDGER} nor {STUDY}; give a folder made by "
            "`fedmerit run` or `fedmerit compare`"
        )
    return study


def check_run(folder: Path) -> None:
    """Refuse a study where one run is asked for."""
    if is_study(folder):
        raise FolderError(f"{folder} holds a study, and this needs one run: give one of {folder / RUNS}")


def study_frame(folder: Path, name: str) -> Frame:
    """One of a study's frames, by name."""
    if name not in STUDY_FRAMES:
        raise UnknownName("table of a study's frames", name, STUDY_FRAMES)
    return getattr(Study.load(folder), name)


def _run_frame(folder: Path, name: str) -> Frame:
    if name not in FRAMES:
        raise UnknownName("table of a run", name, FRAMES)
    with open_ledger(folder) as ledger:
        return run_frame(ledger, name)


def _texts(study: Study, name: str, write: Callable[[TextTable], str]) -> str:
    if name not in TABLES:
        raise UnknownName("table to read", name, TABLES)
    return "\n".join(map(write, TABLES[name](study)))


def _parquet(frame: Frame) -> bytes:
    file = io.BytesIO()
    try:
        frame.to_parquet(file, index=False)
    except ImportError:
        raise ConfigError("parquet needs pyarrow, which is not installed: pip install 'fedmerit[report]'") from None
    return file.getvalue()


FRAME_FORMATS: Mapping[str, Callable[[Frame], str | bytes]] = {
    "csv": lambda frame: str(frame.to_csv(index=False, lineterminator="\n")),
    "parquet": _parquet,
}
TEXT_FORMATS: Mapping[str, Callable[[TextTable], str]] = {"latex": TextTable.latex, "markdown": TextTable.markdown}
