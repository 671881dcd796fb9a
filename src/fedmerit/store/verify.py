"""Verify that the files of a run are what the run wrote.

The ledger's chain covers its rows, the configuration, the encoder, the checkpoints and the models: its last hash stands
for all of them. A run that came to its end also leaves `SHA256SUMS`, which `sha256sum -c` reads. Both show damage and
changes by hand; whoever rewrites everything can make them fit, unless the last hash was kept elsewhere. Of a private
run, epsilon is computed again from the releases that it booked.
"""

import json
import math
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path

from fedmerit.config.privacy import epsilon_of_releases, require_account
from fedmerit.config.reading import check_file
from fedmerit.config.schema import load_config, make_config
from fedmerit.core.recipe_json import part_from_json
from fedmerit.core.server.private_sum import PrivateSum
from fedmerit.core.showing import printable
from fedmerit.errors import ConfigError, FolderError, UserError
from fedmerit.store.ledger import Ledger
from fedmerit.store.model_files import FOLDER as CHECKPOINTS
from fedmerit.store.model_files import NOT_KEPT, SUFFIX, damaged_models, file_hashes, model_paths
from fedmerit.store.run_folder import BEST, CONFIG, LEDGER, MODEL, OWN_SOURCES, differences
from fedmerit.store.strict_json import load_json

SUMS = "SHA256SUMS"
CHANGED = "it is not what was written"
LARGEST_SUMS = 1 << 24
ROUNDING = 1e-6
"""The relative difference of epsilon that other versions of libraries may make."""


@dataclass(frozen=True, slots=True)
class Verified:
    """The result: faults by file, the number of rounds, the last hash of the chain, what it covers and what not."""

    faults: dict[str, str]
    rounds: int
    head: str
    covered: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()


def write_sums(folder: Path) -> None:
    """A line for each file of a finished run, as `sha256sum` writes them; its ledger must be closed."""
    with closing(sqlite3.connect(folder / LEDGER)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    part = folder / f"{SUMS}.part"
    part.write_text(
        "".join(f"{file_sum(path)}  {path.relative_to(folder).as_posix()}\n" for path in _files(folder)),
        encoding="utf-8",
    )
    part.replace(folder / SUMS)


def verify_run(folder: Path) -> Verified:
    """Find every fault of a run's folder; none if all files are unchanged."""
    faults, rounds, head, identity = _wrong_sums(folder), 0, "", ""
    kept, covered, skipped = dict[str, str](), [LEDGER], list[str]()
    if not (folder / LEDGER).is_file() and not faults:
        raise FolderError(f"no run in {folder}: it has no {LEDGER}; give a folder made by `fedmerit run`")
    try:
        with Ledger.open(folder / LEDGER) as ledger:
            damage = ledger.damage()
            if damage:
                faults.setdefault(LEDGER, damage[0])
            else:
                rounds, head, identity, kept = ledger.last_round(), ledger.head(), ledger.identity(), ledger.files()
                meta = ledger.meta()
                covered += [CONFIG] if "config" in meta else []
                faults = _other_files(folder, kept) | _other_config(folder, meta) | faults
                wrong, skipped = _check_epsilon(ledger)
                skipped += _not_covered(folder, meta, kept)
                if wrong:
                    faults.setdefault(LEDGER, wrong)
    except UserError as error:
        faults.setdefault(LEDGER, printable(str(error)))
    covered += sorted(name for name in kept if (folder / name).is_file())
    models = damaged_models(folder, identity, kept)
    if kept and LEDGER not in models and faults.get(MODEL) == CHANGED and MODEL not in models:
        faults[SUMS] = "it has another sum of a model that the chain proves"
    return Verified(models | faults, rounds, head, tuple(covered), tuple(skipped))


def _other_files(folder: Path, kept: Mapping[str, str]) -> dict[str, str]:
    """Files that the chain names and that are missing or different; models without a name in it, once a run ended.

    Seals of models are compared by `damaged_models`. Old checkpoints are removed, so they may be missing.
    """
    if any(Path(name).is_absolute() or ".." in Path(name).parts for name in kept):
        return {LEDGER: "it names files outside of the folder"}
    names = {name for name in kept if not name.startswith(f"{CHECKPOINTS}/")}
    faults = {printable(name): "it is missing" for name in names if not (folder / name).is_file()}
    texts = [name for name in names if not name.endswith(SUFFIX) and (folder / name).is_file()]
    others = file_hashes(folder, texts)
    faults |= {printable(name): NOT_KEPT for name, found in others.items() if found != kept[name]}
    if MODEL in kept and names - {MODEL}:  # a strategy in a Flower app has only that one, and no end
        here = {path.relative_to(folder).as_posix() for path in model_paths(folder)}
        faults |= {printable(name): "the ledger does not name it" for name in here - names}
    return faults


def _not_covered(folder: Path, meta: Mapping[str, str], kept: Mapping[str, str]) -> list[str]:
    """What the last hash says nothing about, in words."""
    config = load_json(meta.get("config", "{}"), "the configuration in the ledger")
    data = config.get("task", {}).get("data", "the task in Python") if isinstance(config, dict) else "?"
    lines = [f"the rows that the run learned from ({data})"]
    own = load_json(meta.get(OWN_SOURCES, "{}"), "the sources in the ledger")
    lines += [f"the code of your own parts: {', '.join(map(str, own))}"] if isinstance(own, dict) and own else []
    if (folder / MODEL).is_file() and not (folder / SUMS).is_file():
        lines.append(f"files without a place in the chain, because {SUMS} is missing")
    if (folder / CHECKPOINTS).is_dir():
        lines.append(f"{BEST} and the clients' models in {CHECKPOINTS}/, which enter the chain when the run ends")
    return [printable(line, 500) for line in lines]


def _check_epsilon(ledger: Ledger) -> tuple[str, list[str]]:
    """The first round whose epsilon does not match the releases so far; or why that was not checked."""
    releases, privacy = ledger.releases(), _kept_privacy(ledger)
    if privacy is None:
        return "it has releases, and its recipe has no noisy sum" if releases else "", []
    try:
        require_account()
    except ConfigError as error:
        return "", [f"epsilon, which was not computed again: {error}"]
    last = {release.round: place for place, release in enumerate(releases, start=1)}
    for row in ledger.rounds():
        index, spent = row["round"], row["epsilon"]
        if index not in last:
            return f"round {index} has no release", []
        expected = epsilon_of_releases(privacy, releases[: last[index]])
        if spent is None or not math.isclose(spent, expected, rel_tol=ROUNDING):
            return f"round {index} has epsilon {spent}, and its releases cost {expected:.6g}", []
    return "", []


def _kept_privacy(ledger: Ledger) -> PrivateSum | None:
    """The noisy sum of the run's recipe; the recipe itself may have parts of a user that cannot be made here."""
    try:
        part = part_from_json(json.dumps(json.loads(ledger.meta()["recipe"])["server"]["aggregator"]))
    except (UserError, ValueError, LookupError, TypeError):
        return None
    return part if isinstance(part, PrivateSum) else None


def _wrong_sums(folder: Path) -> dict[str, str]:
    """Files that do not match SHA256SUMS; none for an unfinished run."""
    path = folder / SUMS
    if not path.exists() and not path.is_symlink():
        return {}
    check_file(path, LARGEST_SUMS, FolderError)
    kept: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        digest, separator, name = line.partition("  ")
        if not separator or len(digest) != 64:
            return {SUMS: "it holds a line that is no sum"}
        kept[name] = digest
    if not kept:
        return {SUMS: "it is empty"}
    here = {one.relative_to(folder).as_posix(): one for one in _files(folder)}
    wrong = {printable(name): "it is missing" for name in kept.keys() - here.keys()}
    wrong |= {printable(name): "no sum was written of it" for name in here.keys() - kept.keys()}
    changed = sorted(name for name in kept.keys() & here.keys() if kept[name] != file_sum(here[name]))
    return wrong | dict.fromkeys(changed, CHANGED)


def _other_config(folder: Path, meta: dict[str, str]) -> dict[str, str]:
    """Where the file of the configuration is not what the ledger keeps of it."""
    if "config" not in meta:
        return {}
    try:
        kept = make_config(load_json(meta["config"], "the configuration in the ledger"))
        changed = differences(kept, load_config(folder / CONFIG))
    except UserError as error:
        return {CONFIG: printable(str(error))}
    return {CONFIG: printable(f"it differs from the ledger's: {'; '.join(changed)}")} if changed else {}


def _files(folder: Path) -> Iterator[Path]:
    """Every file that a finished run consists of."""
    beside = {SUMS, f"{SUMS}.part", f"{LEDGER}-wal", f"{LEDGER}-shm"}
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in beside)


def file_sum(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()
