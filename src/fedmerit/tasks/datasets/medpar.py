"""Task `medpar`: Medicare patients of 54 hospitals in Arizona, 1991; did the patient die in hospital?"""

from __future__ import annotations

from fedmerit.config.schema import TaskConfig
from fedmerit.errors import ConfigError
from fedmerit.tasks.federation import Federation
from fedmerit.tasks.formats.table_files import read_table
from fedmerit.tasks.source import find_file
from fedmerit.tasks.table import table_federation
from fedmerit.tasks.task_spec import MADE, SENSITIVE, TaskSpec

COLUMNS = {
    "client": "provnum",
    "label": "died",
    "attributes": ("white",),
    "features": ("los", "hmo", "white", "age80", "type2", "type3"),
}
"""`type` repeats type1 to type3, of which one follows from the other two."""


def _load(config: TaskConfig, seed: int) -> Federation:
    if config.source != "folder":
        raise ConfigError(f"task 'medpar' is read from FEDMERIT_DATA alone; got task.source = {config.source!r}")
    table = read_table(find_file("medpar", "medpar.csv"))
    return table_federation(table, config.model_copy(update=COLUMNS), MEDPAR, seed)


MEDPAR = TaskSpec(
    name="medpar",
    about="1,495 patients of 54 hospitals, 1 to 92 each: did the patient die? Attribute white; one client per hospital",
    load=_load,
    models=("medpar-linear", "medpar-mlp"),
    partitions=("natural", *MADE, *SENSITIVE),
    clients=54,
    test="matched",
)
