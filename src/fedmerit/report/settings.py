"""Settings of a report: each run's configuration as TOML lines, and what differs between the runs."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

Settings: TypeAlias = dict[str, Any]
Line: TypeAlias = tuple[str, str, str]
"""The full key, the key as it stands in its table, the value: ("train.lr", "lr", "0.5"); a table has no value."""

SEED = "run.seed"


def toml_lines(config: Settings) -> list[Line]:
    """A line per setting, so that two runs can be compared line by line; without unset settings, as in TOML."""
    return list(_table(config, ()))


def settings_of(runs: Sequence[Sequence[Line]]) -> list[Line]:
    """The lines of runs that differ only in the seed, with all their seeds."""
    seeds = ", ".join(value for lines in runs for key, _, value in lines if key == SEED)
    return [(key, name, seeds if key == SEED else value) for key, name, value in runs[0]]


def environment_of(runs: Sequence[Mapping[str, str]]) -> list[Line]:
    """Versions, machine and recipe of the runs, from their ledgers."""
    keys = {key for meta in runs for key in meta} - {"config", "settings"}
    values = {key: dict.fromkeys(meta.get(key, "not known") for meta in runs) for key in sorted(keys)}
    return [(key, key, ", ".join(found)) for key, found in values.items()]


def differences(runs: Sequence[Sequence[Line]]) -> list[dict[str, Any]]:
    """The keys whose value is not the same in all runs that have settings, with the value of each run."""
    values = [{key: value for key, _, value in lines if value} for lines in runs]
    keys = dict.fromkeys(key for known in values for key in known)
    rows = [{"key": key, "values": [known.get(key) for known in values]} for key in keys]
    return [row for row in rows if len({v for v, known in zip(row["values"], values, strict=True) if known}) > 1]


def _table(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[Line]:
    """Values first, then nested tables: TOML allows no other order."""
    own = {key: value for key, value in table.items() if value is not None and not isinstance(value, Mapping)}
    if path and own:
        yield ".".join(path), f"[{'.'.join(map(_key, path))}]", ""
    for key, value in own.items():
        # A JSON scalar or list of them is a TOML value, and unlike tomli_w's it stays on one line.
        yield ".".join((*path, key)), _key(key), json.dumps(value, ensure_ascii=False)
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _table(value, (*path, key))


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key, ensure_ascii=False)
