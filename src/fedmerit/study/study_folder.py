"""The folder of a study: paths and progress of its runs, and checks of a plan against existing runs."""

from dataclasses import dataclass
from pathlib import Path

from fedmerit.config.recipe import make_recipe
from fedmerit.config.schema import Config, load_config
from fedmerit.core.seeds import derive
from fedmerit.engine.measure import tests_one_model
from fedmerit.errors import FolderError
from fedmerit.store.files import write_new_file
from fedmerit.store.model_files import read_model
from fedmerit.store.run_folder import MODEL, config_to_resume, differences, open_ledger
from fedmerit.study.plan import Plan, Row, dump_plan, load_plan

STUDY, RUNS, SUCCESS = "study.toml", "runs", "success"
TUNING, BEST = "tuning", "best.toml"
"""The tuning of a row is a study of its points in tuning/ROW; when it is finished, BEST has the best configuration."""


@dataclass(frozen=True, slots=True)
class Member:
    """One run of a study: its row, seed, configuration and folder.

    A run of a null row has a `draw_seed`, which replaces `run.seed` for the selection of clients and batches.
    """

    row: str
    seed: int
    config: Config
    folder: Path
    draw_seed: int | None = None

    def __str__(self) -> str:
        return f"{self.row}, seed {self.seed}"

    @property
    def begun(self) -> bool:
        """Whether its folder exists."""
        return self.folder.exists()

    @property
    def finished(self) -> bool:
        """Whether it has an intact final model."""
        return read_model(self.folder / MODEL) is not None

    @property
    def complete(self) -> bool:
        """Whether it is finished, and the success of its attackers, if any, is measured."""
        return self.finished and (self.success.exists() or not self.has_success)

    @property
    def has_success(self) -> bool:
        """Whether it has attackers, and a shared model on which their success can be measured."""
        return bool(self.config.task.attack) and tests_one_model(make_recipe(self.config.recipe))

    @property
    def success(self) -> Path:
        """The file with the success of its attackers."""
        return self.folder.parent.parent / SUCCESS / f"{self.folder.name}.json"

    @property
    def rounds(self) -> int:
        """The number of rounds in its ledger."""
        if not self.begun:
            return 0
        with open_ledger(self.folder) as ledger:
            return ledger.last_round()


def members(plan: Plan, folder: Path) -> list[Member]:
    """List all runs of a plan: all rows of the first seed, then of the next, so that rows can be compared early."""
    best = {row.name: best_config(plan, row, folder) for row in plan.tuned}
    runs = []
    for seed in plan.seeds:
        for row in plan.rows:
            chosen = best.get(row.name)
            config = plan.config(row, seed) if chosen is None else with_seed(chosen, seed)
            name, draw_seed = f"{row.slug}-seed{seed}", derive(seed, "null") if row.null else None
            runs.append(Member(row.name, seed, config, folder / RUNS / name, draw_seed))
    return runs


def with_seed(config: Config, seed: int) -> Config:
    """Replace the seed of a configuration."""
    return config.model_copy(update={"run": config.run.model_copy(update={"seed": seed})})


def tuning_folder(folder: Path, row: Row) -> Path:
    """The folder of a row's tuning."""
    return folder / TUNING / row.slug


def best_config(plan: Plan, row: Row, folder: Path) -> Config | None:
    """The best configuration of a row with a grid; None until the tuning of this plan is finished."""
    place = tuning_folder(folder, row)
    if not (place / BEST).is_file() or (place / STUDY).read_text(encoding="utf-8") != dump_plan(plan.tuning(row)):
        return None
    return load_config(place / BEST)


def read_plan(folder: Path) -> Plan:
    """Read the plan of the study in a folder."""
    if not (folder / STUDY).is_file():
        raise FolderError(f"no study in {folder}: it has no {STUDY}; give a folder made by `fedmerit compare`")
    return load_plan(folder / STUDY)


def check_folder(plan: Plan, folder: Path, *, resume: bool = True) -> None:
    """Raise a FolderError if a folder has something else, another study, or runs that cannot be compared with new ones.

    Seeds, rows and targets can be added to a study; existing runs are used. Without `resume` the study is only read,
    and may come from another version or machine.
    """
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not (folder / STUDY).is_file():
        raise FolderError(f"{folder} exists and has no study; choose another --out")
    planned = {(member.row, member.seed): member for member in members(plan, folder)}
    old_plan = read_plan(folder)
    old_tunings, tunings = ({row.name: dump_plan(each.tuning(row)) for row in each.tuned} for each in (old_plan, plan))
    for old in members(old_plan, folder):
        new = planned.get((old.row, old.seed))
        if new is None:
            raise FolderError(
                f"{folder} has another study: it has {old!s}, and the new plan does not; rows and seeds can be added "
                "to a study but not removed; choose another --out"
            )
        if old.begun and old_tunings.get(old.row) != tunings.get(old.row):
            raise FolderError(
                f"{folder} has another study: row {old.row!r} has runs with another tuning, or none; choose another "
                "--out"
            )
        is_tuned = old.row in old_tunings or old.row in tunings
        changes = differences(old.config, new.config) if old.begun or not is_tuned else []
        if old.draw_seed != new.draw_seed:
            changes.append(f"null {old.draw_seed is not None} then, {new.draw_seed is not None} now")
        if changes:
            raise FolderError(
                f"{folder} has another study: row {old.row!r} differs in {'; '.join(changes)}; choose another --out"
            )
    for member in planned.values() if resume else ():
        if member.begun:
            config_to_resume(member.folder, member.config)
    for row in plan.tuned:
        check_folder(plan.tuning(row), tuning_folder(folder, row), resume=resume)


def make_folder(folder: Path) -> None:
    """Make the folder of a study if it does not exist."""
    try:
        (folder / RUNS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FolderError(f"cannot make the folder {folder}: {error.strerror}; choose another --out") from None


def write_plan(plan: Plan, folder: Path) -> None:
    """Write the plan to the folder; it replaces an older plan with fewer rows or seeds."""
    write_new_file(folder / STUDY, dump_plan(plan), "another --out")
