"""Which user-defined parts a command that reads a run folder may import: those that this machine has run before.

A run folder may come from a stranger. So the record of what was run here is not in it, but in the file
`own_parts.txt` in the user's state folder (`XDG_STATE_HOME`, else `~/.local/state/fedmerit`): names, and the SHA-256 of
their modules' files. A module whose file has changed since, or that was never run here, needs `--trust`.
"""

import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from hashlib import sha256
from importlib.machinery import PathFinder
from pathlib import Path

from fedmerit.errors import UntrustedPart

SHORT = 12
"""Characters of a hash that a ledger keeps and messages show."""
_GUARDED: ContextVar[bool] = ContextVar("guarded", default=False)


@contextmanager
def only_trusted_parts(trust: bool = False) -> Iterator[None]:
    """Import only user-defined parts whose source this machine has run before; with `trust` import all of them.

    >>> with only_trusted_parts():
    ...     check_trusted("model", "this:s")
    Traceback (most recent call last):
    fedmerit.errors.UntrustedPart: ...
    """
    token = _GUARDED.set(not trust)
    try:
        yield
    finally:
        _GUARDED.reset(token)


def check_trusted(kind: str, name: str) -> None:
    """Raise UntrustedPart inside `only_trusted_parts`, unless this machine has run the part's present source before."""
    if _GUARDED.get() and _line(name) not in _recorded():
        raise UntrustedPart(
            f"{kind} {name!r} is code that the run folder names, and this machine has not run its present source "
            "before; if you trust that code, add --trust (in Python: Run.load(folder, trust=True))"
        )


def record_sources(names: Iterable[str]) -> None:
    """Note that this machine runs these parts, so that commands that read the run may import them again.

    Without a state folder that can be written to, nothing is noted, and these commands need --trust.
    """
    new = sorted({line for name in names if (line := _line(name))} - _recorded())
    with suppress(OSError, RuntimeError):  # a folder that cannot be written to, or no home
        if new:
            path = record_file()
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in new)


def record_file() -> Path:
    """The file with the parts that this machine has run: a line `SHA256  module:attribute` for each."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "fedmerit" / "own_parts.txt"


def _recorded() -> set[str | None]:
    with suppress(OSError, RuntimeError, ValueError):  # no such file, no home, not text
        return set(record_file().read_text(encoding="utf-8").splitlines())
    return set()


def _line(name: str) -> str | None:
    found = source_hash(name.partition(":")[0])
    return f"{found}  {name}" if found else None


def source_hash(module: str) -> str | None:
    """The SHA-256 of the file that an import of the module would run; None without one, and for this library.

    Packages are found without importing them: their code may be a stranger's.
    """
    if module.split(".")[0] == "fedmerit":
        return None
    try:
        path = getattr(sys.modules.get(module), "__file__", None) or _origin(module)
        return sha256(Path(path).read_bytes()).hexdigest() if path else None
    except (OSError, ImportError, ValueError):
        return None


def _origin(module: str) -> str | None:
    """The file of a module that is not imported yet, part by part of its dotted name."""
    spec, name = importlib.util.find_spec(module.partition(".")[0]), ""
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        if name != part:
            places = spec.submodule_search_locations if spec else None
            spec = PathFinder.find_spec(name, places) if places else None
    return spec.origin if spec else None
