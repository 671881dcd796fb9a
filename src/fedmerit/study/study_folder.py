"""The folder of a study: where each run lies, how far it is, and whether a plan fits what is there."""

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

STUDY, RUNS, CORRECT = "study.toml", "runs", "correct"


@dataclass(frozen=True, slots=True)
class Member:
    """One run of a study: its row, seed, configuration and folder.

    `correct` is the file with the test rows that its final model gets right.
    """

    row: str
    seed: int
    config: Config
    folder: Path
    correct: Path

    def __str__(self) -> str:
        return f"{self.row}, seed {self.seed}"

    @property
    def begun(self) -> bool:
        """Whether its folder exists."""
        return self.folder.exists()

    @property
    def finished(self) -> bool:
        """Whether its final model is there, and whole."""
        return read_model(self.folder / MODEL) is not None

    @property
    def complete(self) -> bool:
        """Whether it is finished, and tested row by row if all clients share its model."""
        return self.finished and (self.correct.exists() or not self.has_common_model)

    @property
    def has_common_model(self) -> bool:
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
    """All runs: the rows of the first seed, then those of the next, so that rows can be compared early."""
    correct = folder / ("right" if (folder / "right").is_dir() else CORRECT)  # "right" was its first name
    return [
        Member(
            row.name,
            seed,
            plan.config(row, seed),
            folder / RUNS / f"{row.slug}-seed{seed}",
            correct / f"{row.slug}-seed{seed}.npz",
        )
        for seed in plan.seeds
        for row in plan.rows
    ]


def read_plan(folder: Path) -> Plan:
    """The plan of the study in a folder."""
    if not (folder / STUDY).is_file():
        raise FolderError(f"no study in {folder}: it has no {STUDY}; give a folder made by `fedmerit compare`")
    return load_plan(folder / STUDY)


def check_folder(plan: Plan, folder: Path) -> None:
    """Refuse a folder that holds something else, another study, or runs that new ones could not be compared with.

    A study may grow: more seeds, more rows, other targets. Runs that are there are kept and used.
    """
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not (folder / STUDY).is_file():
        raise FolderError(f"{folder} exists and holds no study; choose another --out")
    planned = {(member.row, member.seed): member for member in members(plan, folder)}
    for old in members(read_plan(folder), folder):
        new = planned.get((old.row, old.seed))
        if new is None:
            raise FolderError(
                f"{folder} holds another study: it has {old!s}, which the new plan lacks; a study may grow by rows "
                "and seeds but not shrink; choose another --out"
            )
        if changes := differences(old.config, new.config):
            raise FolderError(
                f"{folder} holds another study: row {old.row!r} has {'; '.join(changes)}; choose another --out"
            )
    for member in planned.values():
        if member.begun:
            config_to_resume(member.folder, member.config)


def make_folder(folder: Path) -> None:
    """Make the folder of a study, unless it exists."""
    try:
        (folder / RUNS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FolderError(f"cannot make the folder {folder}: {error.strerror}; choose another --out") from None


def write_plan(plan: Plan, folder: Path) -> None:
    """Write the plan into the folder, in place of the one before the study grew."""
    write_new_file(folder / STUDY, dump_plan(plan), "another --out")
