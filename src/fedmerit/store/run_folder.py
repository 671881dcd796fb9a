"""A run's folder: its files, its lock, and whether the run can be resumed."""

import fcntl
import json
import os
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from uuid import uuid4

from fedmerit.config.own import own_sources
from fedmerit.config.recipe import make_recipe
from fedmerit.config.schema import Config, dump_config, flatten, load_config, make_config
from fedmerit.config.trust import record_sources
from fedmerit.core.recipe import Recipe
from fedmerit.core.recipe_json import part_to_json
from fedmerit.core.recipes import recipe_name
from fedmerit.core.system import instruction_set, processor
from fedmerit.core.types import ACCURACY, EMPTY
from fedmerit.errors import FolderError
from fedmerit.store.ledger import MEASURE, Ledger

CONFIG, LEDGER = "config.toml", "ledger.db"
MODEL, BEST, PERSONAL = "model.safetensors", "best.safetensors", "personal"
CLUSTERS = "clusters"
"""A folder with the models that clients chose from, where there are several: `0.safetensors` ..."""
ENCODER = "encoder.json"
"""How new rows of a table become inputs of the model."""
DATA = "data.json"
"""What was found in a table before round 1, and what was done to it."""
PACKAGES = ("fedmerit", "numpy", "torch")
CODE = "code"
OWN_SOURCES = "own"
"""The ledger's key for the names of user-defined parts, with hashes of their source."""
BITS_DEPEND_ON = (*PACKAGES, CODE)
KERNELS = "kernels"
"""The ledger's key for the instruction set by which torch and `learn.kernels` choose kernels."""
DEVICE = "device"
"""The ledger's key for the kind and model of the device that clients train on; absent: the CPU."""
BASE = "base"
"""The ledger's key for the hash of the base that the model needs: frozen parameters; absent: the model is all."""
APP = "app"
"""The key of the ledger for the name of the Flower app that a strategy ran in."""
DRAW_SEED = "draw_seed"
"""The key of the ledger for the seed of selection and batches, where it is not `run.seed`."""
ROOMS = ("core", "config", "learn", "tasks", "fleet", "engine", "flower")
"""The rooms that decide the bits of a run."""
FREE_KEYS = {"run.workers", "run.memory"}  # they change where the work is done, not what comes out


def check_new(out: Path) -> None:
    """Raise an error if the folder exists: a run never overwrites another."""
    if out.exists():
        raise FolderError(
            f"{out} exists; a run writes to a new folder: choose another --out, remove it first, or continue the run "
            f"in it with --resume {out}"
        )


def make_folder(
    out: Path,
    config: Config | str,
    names: Sequence[str],
    recipe: str,
    device: str = "",
    *,
    draw_seed: int | None = None,
    measure: str = ACCURACY,
    about: Mapping[str, str] = EMPTY,
) -> None:
    """Create a folder with configuration and empty ledger, atomically.

    A run of a task that is made in Python has no configuration file, but settings as JSON. `device` is where clients
    train, where it is known, as their learner describes it. `draw_seed` replaces `run.seed` in the rounds. `measure` is
    what the run is judged by, `about` more for the ledger.
    """
    check_new(out)
    try:
        part = out.parent / f".{out.name}-{uuid4().hex}"
        part.mkdir(parents=True)
    except (NotADirectoryError, FileExistsError, PermissionError) as error:
        raise FolderError(f"cannot make the folder {out}: {error.strerror}; choose another --out") from None
    try:
        if isinstance(config, Config):
            (part / CONFIG).write_text(dump_config(config), encoding="utf-8")
        settings = {"settings": config} if isinstance(config, str) else {"config": config.model_dump_json()}
        meta = recipe_meta(recipe, config if isinstance(config, Config) else None) | settings
        meta |= {DEVICE: device, **about} if device else about
        meta |= {} if draw_seed is None else {DRAW_SEED: str(draw_seed)}
        meta |= {} if measure == ACCURACY else {MEASURE: measure}
        Ledger.create(part / LEDGER, names, meta).close()
        part.rename(out)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def new_ledger(
    out: Path | str | None, recipe: Recipe, config: Config, names: Sequence[str], epochs: int, device: str, measure: str
) -> Ledger:
    """Create a ledger in memory, or in a new folder with the settings by which a report groups runs."""
    form = part_to_json(recipe)
    if out is None:
        return Ledger.create(None, names, recipe_meta(form) | {"epochs": str(epochs), MEASURE: measure})
    run = config.run.model_dump(mode="json", exclude={"workers", "memory"})
    settings = {"recipe": named_form(recipe), "run": run, "train": {"epochs": epochs}}
    make_folder(Path(out), json.dumps(settings), names, form, device, measure=measure)
    return Ledger.open(Path(out) / LEDGER, write=True)


def named_form(recipe: Recipe) -> dict[str, Any]:
    """A recipe as plain values, with the name that a report shows."""
    return {"name": recipe_name(recipe) or "own recipe", **json.loads(part_to_json(recipe))}


def open_ledger(folder: Path) -> Ledger:
    """Open the ledger of a run folder for reading."""
    return Ledger.open(folder / LEDGER)


@contextmanager
def held(folder: Path, by: str = CONFIG) -> Iterator[None]:
    """Lock a folder; a second process gets an error. The lock ends with the process."""
    descriptor = os.open(folder / by, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise FolderError(f"another process runs in {folder}; wait for it, or stop it first") from None
        yield
    finally:
        os.close(descriptor)


def config_to_resume(folder: Path, given: Config | None) -> Config:
    """The configuration of a run to resume; an error names every difference that would change its bits."""
    with open_ledger(folder) as ledger:
        meta = ledger.meta()
    if "config" not in meta:
        raise FolderError(f"{folder} holds a run of a task made in Python, which is not resumed; run it again")
    kept = make_config(json.loads(meta["config"]))
    asked = given or load_config(folder / CONFIG)
    changed = differences(kept, asked)
    if changed:
        raise FolderError(
            f"{folder} was made with another configuration: {'; '.join(changed)}; start a new run instead"
        )
    _check_own_sources(folder, json.loads(meta.get(OWN_SOURCES, "{}")), asked)
    check_versions(folder, meta)
    return asked


def check_versions(folder: Path, meta: Mapping[str, str]) -> None:
    """Raise an error if versions differ from those of the rounds so far."""
    here = environment()
    others = [f"{key} {meta.get(key)} then, {here[key]} now" for key in BITS_DEPEND_ON if meta.get(key) != here[key]]
    if others:
        raise FolderError(f"{folder} was made with other versions: {'; '.join(others)}; install those to resume it")
    if KERNELS in meta and meta[KERNELS] != kernels():
        raise FolderError(
            f"{folder} was made with kernels for {meta[KERNELS]}, and this machine's are for {kernels()}: the bits "
            "would differ; resume it on a machine like the first, or start a new run"
        )


def check_device(folder: Path, here: str) -> None:
    """Raise an error if the device differs from that of the rounds so far."""
    with open_ledger(folder) as ledger:
        then = ledger.meta().get(DEVICE, "cpu")
    if then != here:
        raise FolderError(
            f"{folder} was made on {then}, and clients would train on {here} now: the bits would differ; resume it on "
            "a device like the first, or start a new run"
        )


def _check_own_sources(folder: Path, kept: Mapping[str, str], config: Config) -> None:
    """Raise an error if the source of user-defined parts has changed."""
    if not kept:
        return
    here = own_sources(part_to_json(make_recipe(config.recipe)), _names_in(config))
    changed = [f"{name} {kept[name]} then, {here.get(name)} now" for name in kept if here.get(name) != kept[name]]
    if changed:
        raise FolderError(
            f"{folder} was made with another source of your own parts: {'; '.join(changed)}; restore it, or start a "
            "new run instead"
        )


def recipe_meta(recipe: str, config: Config | None = None) -> dict[str, str]:
    """The origin of a run, for its ledger: versions, recipe, sources of user-defined parts."""
    own = own_sources(recipe, _names_in(config) if config else ())
    record_sources(own)
    chosen = {KERNELS: kernels()} if config or "torch" in sys.modules else {}
    return environment() | chosen | {"recipe": recipe} | ({OWN_SOURCES: json.dumps(own)} if own else {})


def _names_in(config: Config) -> tuple[Any, ...]:
    """The settings that may name a user-defined part."""
    return config.recipe.model_dump(mode="json"), config.task.data, config.task.model


def environment() -> dict[str, str]:
    """Versions that the results depend on, or that a reader of the ledger may want to know."""
    system = {"python": platform.python_version(), "machine": platform.machine(), "cores": str(os.cpu_count())}
    system |= {"cpu": processor(), "instructions": instruction_set()}
    return {name: _version(name) for name in PACKAGES} | {CODE: code()} | system


def kernels() -> str:
    """The instruction set that torch runs with here, in its own word: AVX512, AVX2 or another."""
    import torch  # a run with a configuration trains with it; others need not load it

    return str(torch.backends.cpu.get_cpu_capability())


@cache
def code() -> str:
    """A hash of the source of the packages that determine the bits: it distinguishes commits of one version."""
    root = Path(__file__).parents[1]
    paths = sorted(path for room in ROOMS for path in (root / room).rglob("*.py"))
    parts = (path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() for path in paths)
    return sha256(b"\0".join(parts)).hexdigest()[:12]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"


def differences(kept: Config, asked: Config) -> list[str]:
    """The settings in which two configurations differ, without those that do not change the results."""
    before, after = flatten(kept.model_dump(mode="json")), flatten(asked.model_dump(mode="json"))
    keys = sorted((before.keys() | after.keys()) - FREE_KEYS)
    return [
        f"{key} {before.get(key)!r} then, {after.get(key)!r} now" for key in keys if before.get(key) != after.get(key)
    ]
