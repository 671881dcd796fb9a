"""The folder of a study: where each run lies, how far it is, and whether a plan fits what is there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedmerit.config.recipe import make_recipe
from fedmerit.config.schema import Config, load_config, read_toml, validate
from fedmerit.core.seeds import derive
from fedmerit.engine.loop import tests_one_model
from fedmerit.errors import FolderError
from fedmerit.store.files import write_new_file
from fedmerit.store.model_files import read_model
from fedmerit.store.run_folder import MODEL, config_to_resume, differences, open_ledger
from fedmerit.study.grid import point_slug
from fedmerit.study.plan import Plan, Row, dump_plan, load_plan
from fedmerit.study.tuning import Tuning, dump_tuning

STUDY, RUNS, CORRECT = "study.toml", "runs", "correct"
TUNING, TUNE, BEST = "tuning", "tune.toml", "best.toml"
"""Tunings lie in tuning/ROW, each with its settings, its runs and, at its end, the configuration of the best point."""


@dataclass(frozen=True, slots=True)
class Member:
    """One run of a study or a tuning: its row or point, seed, configuration and folder.

    `correct` is the file with the test rows that its final model gets right. A run of a null row has a `draw_seed`,
    which replaces `run.seed` in its rounds.
    """

    row: str
    seed: int
    config: Config
    folder: Path
    correct: Path
    draw_seed: int | None = None

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
        return tests_one_model(make_recipe(self.config.recipe))

    @property
    def rounds(self) -> int:
        """Rounds that it has played."""
        if not self.begun:
            return 0
        with open_ledger(self.folder) as ledger:
            return ledger.last_round()


def members(plan: Plan, folder: Path) -> list[Member]:
    """All runs: the rows of the first seed, then those of the next, so that rows can be compared early."""
    best = {row.name: best_config(plan.tuning(row), tuning_folder(folder, row)) for row in plan.tuned}
    runs = []
    for seed in plan.seeds:
        for row in plan.rows:
            config = _seeded(best.get(row.name), seed) or plan.config(row, seed)
            member = _member(row.name, row.slug, seed, config, folder)
            runs.append(replace(member, draw_seed=derive(seed, "null")) if row.null else member)
    return runs


def tuning_folder(folder: Path, row: Row) -> Path:
    """Where the tuning of a row of the study in a folder lies."""
    return folder / TUNING / row.slug


def tuning_member(tuning: Tuning, folder: Path, point: int, seed: int) -> Member:
    """The run of a point of a tuning with a seed."""
    return _member(tuning.label(point), point_slug(tuning.points[point]), seed, tuning.config(point, seed), folder)


def _member(row: str, slug: str, seed: int, config: Config, folder: Path) -> Member:
    correct = folder / ("right" if (folder / "right").is_dir() else CORRECT)  # "right" was its first name
    name = f"{slug}-seed{seed}"
    return Member(row, seed, config, folder / RUNS / name, correct / f"{name}.npz")


def best_config(tuning: Tuning, folder: Path) -> Config | None:
    """The configuration of the best point; None while this very tuning has not ended there."""
    ended = (folder / BEST).is_file() and same_tuning(tuning, folder)
    return load_config(folder / BEST) if ended else None


def same_tuning(tuning: Tuning, folder: Path) -> bool:
    """Whether a folder holds this very tuning."""
    return (folder / TUNE).is_file() and _settings(read_tuning(folder)) == _settings(tuning)


def read_tuning(folder: Path) -> Tuning:
    """The tuning in a folder."""
    if not (folder / TUNE).is_file():
        raise FolderError(f"no tuning in {folder}: it has no {TUNE}; give a folder made by `fedmerit tune`")
    return validate(Tuning, read_toml(folder / TUNE))


def write_tuning(tuning: Tuning, folder: Path) -> None:
    """Write the tuning into the folder, in place of the one before its grid or seeds were changed."""
    if not same_tuning(tuning, folder):
        (folder / BEST).unlink(missing_ok=True)
    write_new_file(folder / TUNE, dump_tuning(tuning), "another --out")


def _settings(tuning: Tuning) -> dict[str, Any]:
    return tuning.model_dump(mode="json")


def _seeded(config: Config | None, seed: int) -> Config | None:
    return config and config.model_copy(update={"run": config.run.model_copy(update={"seed": seed})})


def read_plan(folder: Path) -> Plan:
    """The plan of the study in a folder."""
    if not (folder / STUDY).is_file():
        raise FolderError(f"no study in {folder}: it has no {STUDY}; give a folder made by `fedmerit compare`")
    return load_plan(folder / STUDY)


def check_folder(plan: Plan, folder: Path, *, resume: bool = True) -> None:
    """Refuse a folder that holds something else, another study, or runs that new ones could not be compared with.

    A study may grow: more seeds, more rows, other targets. Runs that are there are kept and used. Without `resume` it
    is only read, and may have been made by another version or on another machine.
    """
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not (folder / STUDY).is_file():
        raise FolderError(f"{folder} exists and holds no study; choose another --out")
    planned = {(member.row, member.seed): member for member in members(plan, folder)}
    old_plan = read_plan(folder)
    _check_tunings(old_plan, plan, folder)
    tuned = {row.name for row in (*old_plan.tuned, *plan.tuned)}
    for old in members(old_plan, folder):
        new = planned.get((old.row, old.seed))
        if new is None:
            raise FolderError(
                f"{folder} holds another study: it has {old!s}, which the new plan lacks; a study may grow by rows "
                "and seeds but not shrink; choose another --out"
            )
        changes = differences(old.config, new.config) if old.begun or old.row not in tuned else []
        if old.draw_seed != new.draw_seed:
            changes.append(f"null {old.draw_seed is not None} then, {new.draw_seed is not None} now")
        if changes:
            raise FolderError(
                f"{folder} holds another study: row {old.row!r} has {'; '.join(changes)}; choose another --out"
            )
    for member in planned.values() if resume else ():
        if member.begun:
            config_to_resume(member.folder, member.config)


def _check_tunings(old: Plan, new: Plan, folder: Path) -> None:
    """Refuse another tuning of a row whose runs have begun; before that, its tuning may change."""
    begun = {member.row for member in members(old, folder) if member.begun}
    tunings = {row.name: _settings(new.tuning(row)) for row in new.tuned}
    for row in old.rows:
        before = None if row.tune is None else _settings(old.tuning(row))
        if row.name in begun and before != tunings.get(row.name):
            raise FolderError(
                f"{folder} holds another study: the runs of row {row.name!r} have begun, and were tuned in another way "
                "or not at all; choose another --out"
            )


def make_folder(folder: Path) -> None:
    """Make the folder of a study, unless it exists."""
    try:
        (folder / RUNS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FolderError(f"cannot make the folder {folder}: {error.strerror}; choose another --out") from None


def write_plan(plan: Plan, folder: Path) -> None:
    """Write the plan into the folder, in place of the one before the study grew."""
    write_new_file(folder / STUDY, dump_plan(plan), "another --out")
