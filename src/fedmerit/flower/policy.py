"""A site's policy: what its node answers, whatever the server requests.

The node's owner writes `policy.toml`. The node refuses a request that the policy does not allow, and the server drops
the client with that reason. Each answer and each refusal is a line of the local log. `fedmerit flower node --policy
FILE` also refuses apps that bring code, before any of it runs.
"""

import io
import json
import math
import os
import sys
import tomllib
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable, Mod
from flwr.common.constant import ErrorCode
from pydantic import Field

from fedmerit.config.own import own_names
from fedmerit.config.schema import make_config, read_toml
from fedmerit.config.sections import NotNegative, Section, validate
from fedmerit.core.showing import printable
from fedmerit.errors import ConfigError
from fedmerit.flower.messages import CONFIG, EVALUATE, HELLO, REWARD
from fedmerit.tasks.registry import ClientHalf

POLICY = "FEDMERIT_POLICY"
"""Environment variable: the policy file of this node."""
APP, TEXT = "fedmerit.flower.app:client", "fedmerit"
"""The ClientApp of the apps that fedmerit makes, and the key of their configuration."""
PROJECT, MOST_BYTES = "pyproject.toml", 1 << 20
NO_CODE = {PROJECT, ".info/CONTENT"}
"""The files of an app without code, and the most bytes that the first may have."""
REFUSED, FAILED = "refused by the site's policy", "the node could not answer"
EPSILON = 1e-9
"""0.15 / 0.05 is a little less than 3 in floats, and still three steps."""


class Policy(Section):
    """The settings of policy.toml. Without a setting, the node answers everything of that kind."""

    facts: dict[str, NotNegative] | None = None
    """The facts and objectives that leave the node, each with the step it is rounded down to; 0 is exact."""
    min_rows: Annotated[int, Field(ge=0, strict=True)] = 0
    """The fewest rows that an answer may be computed from."""
    recipes: tuple[str, ...] | None = None
    """The recipes that may run."""
    modules: tuple[str, ...] = ()
    """Installed modules whose parts (`module:name`) a configuration may name."""
    apps: Literal["fedmerit", "any"] = "fedmerit"
    """"fedmerit": only apps without code, which run the ClientApp of the installed fedmerit."""
    trusted_entities: str = ""
    """A YAML file of public keys for Flower's --trusted-entities; apps that none of them signed are refused."""
    log: str = "answers.jsonl"
    """The log, relative to the folder in which the node was started."""

    def refuses_app(self, content: bytes) -> str | None:
        """Return why an app must not run on this node; None if it may."""
        if self.apps == "any":
            return None
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as bundle:
                names = bundle.namelist()
                code = sorted({*names} - NO_CODE)
                if code or len(names) != len({*names}):  # which of two files with one name is read is not defined
                    return f"{REFUSED}: the app brings code: {printable(', '.join(code), 200)}"
                if bundle.getinfo(PROJECT).file_size > MOST_BYTES:
                    return f"{REFUSED}: the app's {PROJECT} is too large"
                app = tomllib.loads(bundle.read(PROJECT).decode())["tool"]["flwr"]["app"]["components"]
        except Exception as error:  # a hostile file may cause any error
            return f"{REFUSED}: the app cannot be read: {type(error).__name__}"
        return None if app.get("clientapp") == APP else f"{REFUSED}: the app's ClientApp is not {APP}"

    def refuses(self, message: Message, context: Context, half: Callable[[Context], ClientHalf]) -> str | None:
        """Return why a request is not allowed; None if it is. Rows are loaded only for an allowed configuration."""
        content, kind = message.content, message.metadata.message_type
        record = content.get(CONFIG)
        settings = record if isinstance(record, ConfigRecord) else {}
        lists = [settings.get(key) for key in ("facts", "objectives")]
        names = [str(name) for requested in lists if isinstance(requested, list) for name in requested]
        reason = self._refuses_run(context.run_config) or self._refuses_facts(names)
        if reason is None and kind != HELLO and self.min_rows:
            data, split = half(context).data, "validation" if kind == REWARD else "training"
            split = str(settings.get("on")) if kind.startswith(EVALUATE) else split
            rows = len({"training": data.train, "validation": data.validation}.get(split, data.test))
            if 0 < rows < self.min_rows:
                reason = f"it answers from {self.min_rows} rows or more"
        return None if reason is None else f"{REFUSED}: {reason}"

    def _refuses_run(self, settings: Mapping[str, Any]) -> str | None:
        """Return why a run configuration is not allowed."""
        values = tomllib.loads(str(settings[TEXT])) if TEXT in settings else {}
        foreign = [name for name in own_names(values) if name.partition(":")[0] not in self.modules]
        if foreign:
            return f"it does not run {foreign[0]}; `modules` allows {_listed(self.modules)}"
        recipe = make_config(values).recipe.name if values else "of unknown name"
        if self.recipes is not None and recipe not in self.recipes:
            return f"it does not run recipe {recipe}; `recipes` allows {_listed(self.recipes)}"
        return None

    def _refuses_facts(self, names: Sequence[str]) -> str | None:
        """Return which requested fact or objective may not leave the node."""
        refused = next((name for name in names if name not in self.facts), None) if self.facts is not None else None
        return None if refused is None else f"it does not report {refused}; [facts] has {_listed(self.facts or ())}"

    def round_facts(self, content: RecordDict) -> None:
        """Round the facts of a reply down to multiples of their steps."""
        for record in content.metric_records.values():
            for name, step in (self.facts or {}).items():
                value = record.get(name)
                if step and isinstance(value, float | int) and math.isfinite(value):
                    record[name] = type(value)(math.floor(value / step + EPSILON) * step)

    def write(self, run: int, kind: str, reason: str | None, metrics: Mapping[str, Any]) -> None:
        """Append a line to the log: time, run, kind of request, why it was refused, and the numbers that leave."""
        line: dict[str, Any] = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "run": str(run), "kind": kind}
        line |= {"answer": "given", "numbers": metrics} if reason is None else {"answer": "refused", "reason": reason}
        with Path(self.log).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


@lru_cache(maxsize=2)
def read_policy(path: Path) -> Policy:
    """Read a policy file; a wrong key or value is an error."""
    if not path.is_file():
        raise ConfigError(f"no policy file {path}; give --policy FILE, or copy the one of a new kit")
    return validate(Policy, read_toml(path))


def policy_of_node() -> Policy | None:
    """Read the policy that FEDMERIT_POLICY names; None without one."""
    path = os.environ.get(POLICY)
    return read_policy(Path(path)) if path else None


def keep_policy(half: Callable[[Context], ClientHalf]) -> Mod:
    """Make a mod of a ClientApp that refuses what the node's policy does not allow, and logs each answer."""

    def guarded(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Check the request, answer it, round the facts of the reply."""
        policy = policy_of_node()
        if policy is None:
            return call_next(message, context)
        kind, metrics = message.metadata.message_type, dict[str, Any]()
        try:
            reason = policy.refuses(message, context, half)
            reply = call_next(message, context) if reason is None else refusal(message, reason)
            if reason is None:
                policy.round_facts(reply.content)
                metrics = {name: value for one in reply.content.metric_records.values() for name, value in one.items()}
        except Exception as error:  # a hostile request may cause any error; the node answers it and goes on
            reason = f"{FAILED}: {type(error).__name__}: {error}"
            reply = refusal(message, reason)
        policy.write(context.run_id, kind, reason, metrics)
        return reply

    return guarded


def log_unknown_requests(context: Context) -> Iterator[None]:
    """Log a request of a kind that the ClientApp does not have, which reaches no mod: a lifespan of the ClientApp."""
    yield
    policy, error = policy_of_node(), sys.exception()
    if policy is not None and error is not None:
        policy.write(context.run_id, "unknown", f"{FAILED}: {error}", {})


def refusal(message: Message, reason: str) -> Message:
    """Make the error reply to a request that the node does not serve."""
    return Message(Error(code=ErrorCode.MOD_FAILED_PRECONDITION, reason=printable(reason)), reply_to=message)
