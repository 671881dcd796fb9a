"""A study's folder: which run lies where, how far it is, and whether a plan fits what is there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedmerit.config.recipes import make_recipe
from fedmerit.config.schema import Config
from fedmerit.errors import FolderError
from fedmerit.store.files import write_new_file
from fedmerit.store.model_files import read_model
from fedmerit.store.run_folder import MODEL, config_to_resume, differences, open_ledger
from fedmerit.study.plan import Plan, dump_plan, load_plan

STUDY, RUNS, RIGHT = "study.toml", "runs", "right"


@dataclass(frozen=True, slots=True)
class Member:
    """One run of a study: its row and seed, its configuration, its folder, and where its right test rows are kept."""

    row: str
    seed: int
    config: Config
    folder: Path
    right: Path

    def __str__(self) -> str:
        return f"{self.row}, seed {self.seed}"

    @property
    def begun(self) -> bool:
        """Whether there is a folder."""
        return self.folder.exists()

    @property
    def finished(self) -> bool:
        """Whether its final model is there, whole."""
        return read_model(self.folder / MODEL) is not None

    @property
    def complete(self) -> bool:
        """Finished, and tested row by row where it has one model for all."""
        return self.finished and (self.right.exists() or not self.one_model)

    @property
    def one_model(self) -> bool:
        """Whether all clients share one model."""
        return make_recipe(self.config.recipe).personal is None

    @property
    def rounds(self) -> int:
        """Rounds that it has played."""
        if not self.begun:
            return 0
        with open_ledger(self.folder) as ledger:
            return ledger.last_round()


def members(plan: Plan, folder: Path) -> list[Member]:
    """All rows of the first seed, then of the next: what is done early can be compared early."""
    return [
        Member(
            row.name,
            seed,
            plan.config(row, seed),
            folder / RUNS / f"{row.slug}-seed{seed}",
            folder / RIGHT / f"{row.slug}-seed{seed}.npz",
        )
        for seed in plan.seeds
        for row in plan.rows
    ]


def read_plan(folder: Path) -> Plan:
    """The plan of a study that was begun in a folder."""
    if not (folder / STUDY).is_file():
        raise FolderError(f"no study in {folder}: it has no {STUDY}; give a folder made by `fedmerit compare`")
    return load_plan(folder / STUDY)


def check_folder(plan: Plan, folder: Path) -> None:
    """Refuse a folder that holds something else, another study, or runs that could not be compared with new ones.

    A study may grow: more seeds, more rows, other targets. What is there stays, and is used.
    """
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not (folder / STUDY).is_file():
        raise FolderError(f"{folder} exists and holds no study; choose another --out")
    asked = {(one.row, one.seed): one for one in members(plan, folder)}
    for old in members(read_plan(folder), folder):
        now = asked.get((old.row, old.seed))
        if now is None:
            raise FolderError(
                f"{folder} holds another study: it has {old!s}, which the new one has not; a study may grow by rows "
                "and seeds and not shrink; choose another --out"
            )
        if changed := differences(old.config, now.config):
            raise FolderError(
                f"{folder} holds another study: row {old.row!r} has {'; '.join(changed)}; choose another --out"
            )
    for one in asked.values():
        if one.begun:
            config_to_resume(one.folder, one.config)


def make_folder(folder: Path) -> None:
    """The folder, if it is not there."""
    try:
        (folder / RUNS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FolderError(f"cannot make the folder {folder}: {error.strerror}; choose another --out") from None


def write_plan(plan: Plan, folder: Path) -> None:
    """The study as it is asked for now, in place of what it was before it grew."""
    write_new_file(folder / STUDY, dump_plan(plan), "another --out")
