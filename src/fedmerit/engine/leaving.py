"""A client leaves: the run repeated without it, and a statement of what changed and what cannot be undone.

The repeated run has the bits of a run that never had the client. Draws derive from a client's place among the clients,
so the remaining clients are numbered anew, as they would be without it; encoder and splits are fitted again.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedmerit.config.schema import Config, make_config
from fedmerit.config.task import NODES
from fedmerit.core.objectives import measure_label
from fedmerit.core.showing import printable
from fedmerit.errors import ConfigError, FolderError
from fedmerit.store.files import write_new_file
from fedmerit.store.ledger import Ledger
from fedmerit.store.model_files import read_model
from fedmerit.store.run_folder import LEDGER, MODEL, differences, open_ledger
from fedmerit.store.strict_json import dump_json
from fedmerit.store.verify import file_sum

LEAVING = "leaving"
"""The ledger's key for the clients that left and the run before; the stem of the statement's files."""
LEFT_BEHIND = (
    "What others saw stays with them: facts, weights and explanations of the clients that left, in the earlier ledger "
    "and in its reports, exports and copies.",
    "The earlier model, and what was made with it, contains their updates. The remaining clients trained on it and may "
    "have kept it.",
    "The earlier folder is not changed. Delete it and its copies if the agreement asks for that.",
)


def leave(config: Config, folder: Path, clients: Sequence[str]) -> tuple[Config, str]:
    """The configuration without these clients, and a note for the ledger of the new run, as JSON.

    config   of the run to repeat
    folder   where that run is; without a ledger in it, there is no earlier run to compare with
    clients  names or numbers, as `fedmerit explain --client` accepts them

    A private run and a deployment are refused.
    """
    if config.privacy is not None:
        raise ConfigError(
            "a private run cannot be repeated without a client: the second model would spend the epsilon of the "
            "remaining clients again, and the difference of both would tell about the client that left. Epsilon "
            "already bounds what the first model tells about it; remove [privacy] only for a new run with new consent"
        )
    if config.task.data == NODES:
        raise ConfigError(
            f"task.data = {NODES!r}: the rows are on the nodes, so the run cannot be repeated here; remove the client "
            "from task.nodes.names and start a new run (fedmerit flower run)"
        )
    earlier: dict[str, Any] | None = None
    if (folder / LEDGER).is_file():
        with open_ledger(folder) as ledger:
            kept = make_config(json.loads(ledger.meta().get("config", "{}")))
            if changed := differences(kept, config):
                raise FolderError(f"{folder} was made with another configuration: {'; '.join(changed)}; restore it")
            left = [ledger.names()[ledger.find_client(one)] for one in clients]
            earlier = {"folder": str(folder), **_state(folder, ledger)}
    else:
        left = list(clients)
    values = config.model_dump(mode="json", exclude_none=True)
    values["task"]["without"] = list(dict.fromkeys([*config.task.without, *left]))
    note = {"left": values["task"]["without"], "before": earlier}
    return make_config(values), json.dumps(note)


def write_statement(folder: Path) -> None:
    """Write leaving.json and leaving.md to a finished run that repeats another without a client; else nothing."""
    with Ledger.open(folder / LEDGER) as ledger:
        note = json.loads(ledger.meta().get(LEAVING, "null"))
        if note is None:
            return
        values = note | {"after": _state(folder, ledger), "remaining": len(ledger.names())}
        values |= {"moved": _moved(folder, note["before"]), "cannot_be_undone": LEFT_BEHIND}
    write_new_file(folder / f"{LEAVING}.json", dump_json(values, indent=1) + "\n")
    write_new_file(folder / f"{LEAVING}.md", _markdown(values))


def _state(folder: Path, ledger: Ledger) -> dict[str, Any]:
    """Hashes and figures of a run."""
    rounds, model = ledger.rounds(), folder / MODEL
    digest, value = file_sum(model) if model.is_file() else None, rounds[-1]["value"] if rounds else None
    return {"model": digest, "ledger": ledger.head(), "rounds": len(rounds), "measure": ledger.measure, "value": value}


def _moved(folder: Path, before: dict[str, Any] | None) -> dict[str, float] | None:
    """How far the model moved: length of the difference, that length by the length before, largest change of an entry.

    None if there is no earlier model, or one of another size.
    """
    old = read_model(Path(before["folder"]) / MODEL) if before and before["model"] else None
    new = read_model(folder / MODEL)
    if old is None or new is None or old[0].shape != new[0].shape:
        return None
    move = new[0].astype(np.float64) - old[0]
    length, base = float(np.linalg.norm(move)), float(np.linalg.norm(old[0].astype(np.float64)))
    return {"distance": length, "relative": length / base if base else 0.0, "largest": float(np.abs(move).max())}


def _markdown(values: dict[str, Any]) -> str:
    before, after, moved = (values[key] for key in ("before", "after", "moved"))
    rows = [("SHA-256 of the model", "model"), ("last hash of the ledger", "ledger"), ("rounds", "rounds")]
    rows.append((f"{measure_label(after['measure'])}, on each run's clients", "value"))
    cells = [f"| {text} | {before[key] if before else '-'} | {after[key]} |" for text, key in rows]
    far = "There is no earlier model of the same size to compare with."
    if moved:
        far = (
            f"The model moved by {moved['distance']:.6g} (Euclidean), {moved['relative']:.2%} of its length before; "
            f"the largest change of a parameter is {moved['largest']:.6g}."
        )
    return "\n".join(
        [
            *(f"# Clients that left: {', '.join(map(printable, values['left']))}", ""),
            f"This run repeats {before['folder'] if before else 'a configuration'} without them, with the remaining "
            f"{values['remaining']} clients. Their rows were not used: not for training, tests or encoder.",
            *("", "| | before | after |", "| --- | --- | --- |", *cells, "", far, "", "What cannot be undone:", ""),
            *(f"- {line}" for line in values["cannot_be_undone"]),
            "",
        ]
    )
