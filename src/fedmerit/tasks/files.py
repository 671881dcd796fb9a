"""Several files as one table: which files, one name for each column, and how the files differ.

The client of a row is its file's stem, unless `task.client` names a column.
"""

import glob
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmerit.config.task import SEVERAL, TABLE, TaskConfig
from fedmerit.core.showing import shown
from fedmerit.errors import ConfigError, DataError, UnknownName, did_you_mean
from fedmerit.tasks.cells import as_text, is_missing, normal
from fedmerit.tasks.encoding import FILE, stem_of
from fedmerit.tasks.formats.table_files import CSV, PARQUET, PARQUET_FORM, Table, read_table
from fedmerit.tasks.suspicions import Suspicion, either, setting


def is_several(data: str) -> bool:
    """Whether `task.data` names several files: a list, a pattern or a folder."""
    text = data.removeprefix(TABLE)
    path = Path(text).expanduser()
    return not path.is_file() and (SEVERAL in text or glob.has_magic(text) or path.is_dir())


def find_files(data: str) -> list[Path]:
    """The files that `task.data` names, in the order of their names."""
    paths: list[Path] = []
    for part in data.removeprefix(TABLE).split(SEVERAL):
        path = Path(part).expanduser()
        if path.is_dir():
            matches = sorted(file for file in path.iterdir() if file.name.lower().endswith((*CSV, *PARQUET)))
        elif glob.has_magic(part) and not path.exists():
            matches = sorted(Path(name) for name in glob.glob(str(path), recursive=True) if Path(name).is_file())
        else:
            matches = [path]
        if not matches:
            raise DataError(f"no table matches {part!r}; paths start at the current folder, {Path.cwd()}")
        paths += [one for one in matches if one not in paths]
    return paths


def read_tables(config: TaskConfig, several: bool = False) -> Table:
    """Read the file or files that `task.data = "table:..."` names; `several`: also a single file is a client."""
    if config.data == TABLE:
        raise ConfigError(f"task.data = '{TABLE}FILE' must name a CSV or Parquet file (got {config.data!r})")
    if not several and not is_several(config.data):
        return joined({"": read_table(Path(config.data.removeprefix(TABLE)).expanduser())}, config)
    paths = find_files(config.data)
    stems = [stem_of(path) for path in paths]
    names = [
        stem if stems.count(stem) == 1 else f"{path.parent.name}/{path.name}"
        for stem, path in zip(stems, paths, strict=True)
    ]
    if len(set(names)) < len(names):
        raise DataError(f"each file needs another name, as it names the client (got {shown(names)}); rename one")
    left = set() if config.client or config.partition not in ("default", "natural") else {*config.without}
    if unknown := sorted(left - {*names}):
        raise UnknownName("client to leave", unknown[0], names)
    tables = {name: read_table(path) for name, path in zip(names, paths, strict=True) if name not in left}
    if not tables:
        raise DataError("a federation needs at least one client (all of them leave)")
    return replace(joined(tables, config), source=config.data.removeprefix(TABLE))


def joined(tables: Mapping[str, Table], config: TaskConfig) -> Table:
    """One table of all files' rows, with the column `file` if there are several, and suspicions about differences."""
    tables = {stem: _renamed(table, config.rename) for stem, table in tables.items()}
    tables, found = _one_name(tables)
    several = "" not in tables
    names = list(dict.fromkeys(name for table in tables.values() for name in _names(table)))
    if several and FILE in names:
        raise ConfigError(f"a column is called {FILE!r}, the name of the column of files; set task.rename")
    found += [*_lacking(tables, names, config), *_forms(tables), *_copies(tables)] if several else []
    others = {name: kind for table in tables.values() for name, kind in table.others.items()}
    columns = {name: _stacked(tables, name) for name in names if name not in others}
    if several:
        columns[FILE] = np.repeat(np.array([*tables], dtype=object), [len(table) for table in tables.values()])
    files = [
        {"file": stem, "rows": len(table), "columns": len(_names(table)), "form": table.form}
        for stem, table in tables.items()
    ]
    settled, known = {*config.drop, *config.features}, config.replace.get(FILE, {})
    found = [one for one in found if not (one.column in settled or (not one.column and one.client in known))]
    first = next(iter(tables.values()))
    return replace(first, columns=columns, others=others, found=tuple(found), files=tuple(files) if several else ())


def _names(table: Table) -> list[str]:
    return [*table.columns, *table.others]


def _renamed(table: Table, names: Mapping[str, str]) -> Table:
    """Give columns other names; two columns of one name are an error."""
    name, count = Counter(names.get(name, name) for name in _names(table)).most_common(1)[0]
    if count > 1:
        raise DataError(f"task.rename gives two columns of {table.source} the name {name!r}; drop or rename one")
    columns = {names.get(name, name): values for name, values in table.columns.items()}
    return replace(table, columns=columns, others={names.get(name, name): kind for name, kind in table.others.items()})


def _one_name(tables: Mapping[str, Table]) -> tuple[dict[str, Table], list[Suspicion]]:
    """Read names that differ only in their spelling as one, unless one file has both."""
    groups: dict[str, Counter[str]] = {}
    for name in (name for table in tables.values() for name in _names(table)):
        groups.setdefault(normal(name), Counter())[name] += 1
    found, names = list[Suspicion](), dict[tuple[str, ...], dict[str, str]]()
    for first, *rest in ([name for name, _ in group.most_common()] for group in groups.values()):
        both = [table.source for table in tables.values() if len({first, *rest} & {*_names(table)}) > 1]
        for name in rest:
            if both:
                done = f"{both[0]} has both; both are kept; {_drop(name)}"
                found.append(Suspicion("names", f"Are {name!r} and {first!r} one column? {done}", name))
            else:
                where = tuple(stem for stem, table in tables.items() if name in _names(table))
                names.setdefault(where, {})[name] = first
    for where, spelt in names.items():
        what = shown([f"{name!r} and {first!r}" for name, first in spelt.items()])
        pairs = ", ".join(f"{json.dumps(name)} = {json.dumps(first)}" for name, first in spelt.items())
        done = f"read as one; task.rename = {{{pairs}}} confirms it"
        text = f"Are {what} (in {shown(where)}) one column{' each' * (len(spelt) > 1)}? They are {done}"
        found.append(Suspicion("names", text, next(iter(spelt.values())), where[0]))
    for name in dict.fromkeys(name for table in tables.values() for name in table.twice):
        done = f"The header has two of that name, with other values; both are kept; {_drop(name)}"
        found.append(Suspicion("names", f"Is {name} another column than the first? {done}", name))
    spellings = {name: first for spelt in names.values() for name, first in spelt.items()}
    return {stem: _renamed(table, spellings) for stem, table in tables.items()}, found


def _drop(name: str) -> str:
    return f"task.drop = [{json.dumps(name)}] leaves it out"


def _lacking(tables: Mapping[str, Table], names: Sequence[str], config: TaskConfig) -> list[Suspicion]:
    """Columns that only some files have; those of less than half of the files are left out."""
    has = {stem: _names(table) for stem, table in tables.items()}
    needed = [*([config.label] if isinstance(config.label, str) else config.label), config.client]
    for name, stem in ((name, stem) for name in needed if name in names for stem in tables):
        if name not in has[stem]:
            hint = did_you_mean(name, has[stem])
            raise DataError(f"{stem} has no column {name}{hint}; it has {shown(has[stem])}; set task.rename")
    found = []
    for name in names:
        have = [stem for stem in tables if name in has[stem]]
        if 2 * len(have) < len(tables):
            done = f"Only {shown(have)} has it; left out; {either(name)}"
            text, reason = f"Is {name} known at the other clients? {done}", f"only {shown(have)} has it"
            found.append(Suspicion("schema", text, name, have[0], reason=reason))
            continue
        for stem in [stem for stem in tables if stem not in have]:
            hint = did_you_mean(name, [other for other in has[stem] if sum(other in one for one in has.values()) == 1])
            done = f"Its rows get the other clients' median; task.rename gives a column this name; {_drop(name)}"
            found.append(Suspicion("schema", f"Does {stem} have {name} under another name{hint}? {done}", name, stem))
    return found


def _forms(tables: Mapping[str, Table]) -> list[Suspicion]:
    """Files that are written in another way than most."""
    orders = {stem: tuple(table.columns) for stem, table in tables.items()}
    usual = Counter(table.form for table in tables.values()).most_common(1)[0][0]
    order = Counter(orders.values()).most_common(1)[0][0]
    found = []
    for stem, table in tables.items():
        marks = [table.form] if table.form not in (usual, PARQUET_FORM) else []
        common = [name for name in order if name in orders[stem]]
        marks += ["another order of columns"] if [name for name in orders[stem] if name in common] != common else []
        if marks:
            done = f"It has {', '.join(marks)} (most files: {usual}); {setting(FILE, {stem: stem})} confirms it"
            found.append(Suspicion("form", f"Is {stem} read correctly? {done}", client=stem))
    return found


def _copies(tables: Mapping[str, Table]) -> list[Suspicion]:
    """Files with the same rows as another."""
    found, rows = list[Suspicion](), dict[Any, str]()
    for stem, table in tables.items():
        cells = frozenset((name, tuple(as_text(values))) for name, values in table.columns.items())
        if (first := rows.setdefault(cells, stem)) != stem:
            done = f"All {len(table):,} rows are the same; kept; {setting(FILE, {stem: ''})} leaves it out"
            found.append(Suspicion("copy", f"Is {stem} a copy of {first}? {done}", client=stem))
    return found


def _stacked(tables: Mapping[str, Table], name: str) -> NDArray[Any]:
    """A column of all files; words if a file has words."""
    parts = [table.columns.get(name, np.full(len(table), np.nan)) for table in tables.values()]
    words = any(part.dtype == object and not is_missing(part).all() for part in parts)
    return np.concatenate([as_text(part) if words else part.astype(np.float64) for part in parts])  # None is NaN
