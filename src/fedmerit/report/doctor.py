"""Doctor: check before a run whether this machine can run a federation."""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal, TypeAlias

from fedmerit.config.schema import Config
from fedmerit.core.system import cores, instruction_set, processor
from fedmerit.errors import UserError

Status: TypeAlias = Literal["ok", "warning", "failed"]
PACKAGES = ("fedmerit", "numpy", "scipy", "torch", "flwr", "ray", "cryptography", "safetensors", "pydantic")
SOON = 14
"""Days before a certificate expires from which on a warning is given."""
RENEW = "renew it: call `fedmerit flower provision` again with the same --out"
PATIENCE = 10.0
"""Seconds that a SuperLink has to answer."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check, and what to do if it failed."""

    check: str
    status: Status
    text: str


def examine(
    config: Config | None = None,
    kit: Path | None = None,
    superlink: str | None = None,
    authority: Path | None = None,
) -> Iterator[Finding]:
    """Run all checks; one that cannot be done is a finding, too."""
    yield from check_versions()
    yield Finding("processor", "ok", f"{processor()}, {cores()} cores, {instruction_set()}")
    if config is not None:
        yield _tried("data", lambda: check_data(config))
    if kit is not None:
        yield from check_kit(kit)
    if superlink is not None:
        yield _tried("superlink", lambda: check_superlink(superlink, authority))


def _tried(name: str, check: Callable[[], Finding]) -> Finding:
    """What a check saw; what stops it is its finding."""
    try:
        return check()
    except UserError as error:
        return Finding(name, "failed", str(error))
    except ImportError as error:
        return Finding(name, "failed", f"{error}; pip install 'fedmerit[all]'")
    except Exception as error:  # whatever data, a model or a network does: the other checks go on
        return Finding(name, "failed", f"{type(error).__name__}: {error}")


def check_versions() -> Iterator[Finding]:
    """Versions that results depend on."""
    found = {name: _version(name) for name in PACKAGES}
    shown = ", ".join(f"{name} {number}" for name, number in found.items() if number)
    yield Finding("versions", "ok", shown)
    if not found["flwr"]:
        yield Finding("flower", "warning", "flwr is not installed; pip install 'fedmerit[flower]' for real federations")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def check_data(config: Config) -> Finding:
    """Check that the data of a configuration can be read and suffices for its recipe."""
    from fedmerit.config.privacy import make_collect, recipe_of
    from fedmerit.engine.preflight import check_config, check_server
    from fedmerit.tasks.registry import make_server, make_task

    if config.task.nodes is not None:
        recipe = recipe_of(config)
        check_server(make_server(config), recipe, make_collect(config, recipe), config.run.audit)
        return Finding("data", "ok", f"the server's part is there; {len(config.task.nodes.names)} nodes have the rows")
    task = make_task(config)
    check_config(config, task)
    rows = len(task.federation.train.y)
    return Finding("data", "ok", f"{config.task.data}: {len(task.federation.names)} clients, {rows:,} training rows")


def check_certificates(folder: Path) -> Iterator[Finding]:
    """Check the expiry of the certificates in a server's folder, and that the key matches and is private."""
    from fedmerit.flower.keys import AUTHORITY, SERVER, SERVER_KEY, is_key_of

    server, key = folder / SERVER, folder / SERVER_KEY
    for path in (folder / AUTHORITY, server):
        yield _tried(path.name, lambda path=path: _ends(path))  # type: ignore[misc]
    wrong = f"{key} is not the key of {server}; {RENEW}"
    yield _tried(key.name, lambda: _private(key))
    yield _tried(
        key.name, lambda: Finding(key.name, *(("ok", "matches") if is_key_of(key, server) else ("failed", wrong)))
    )


def _private(key: Path) -> Finding:
    """Check that only its owner can read a key."""
    if key.stat().st_mode & 0o077:
        return Finding(key.name, "failed", f"{key} can be read by others than its owner; chmod 600 {key}")
    return Finding(key.name, "ok", "only its owner can read it")


def _ends(path: Path) -> Finding:
    from fedmerit.flower.keys import valid_until

    until = valid_until(path)
    days = (until - datetime.now(UTC)).days
    text = f"valid until {until:%Y-%m-%d}, {days} days" if days >= 0 else f"ended on {until:%Y-%m-%d}"
    status: Status = "failed" if days < 0 else "warning" if days < SOON else "ok"
    return Finding(path.name, status, text if status == "ok" else f"{text}; {RENEW}")


def check_superlink(address: str, authority: Path | None) -> Finding:
    """Check that a SuperLink answers at the address, by TLS if the authority's certificate is given."""
    from fedmerit.flower.https import check_health

    way, begun = "in plain text" if authority is None else "by TLS", time.monotonic()
    try:
        check_health(address, authority, PATIENCE)
    except (OSError, ValueError) as error:
        text = f"{address} does not answer {way} ({error}); check address, firewall and certificate"
        return Finding("superlink", "failed", text)
    return Finding("superlink", "ok", f"{address} answers {way} after {1000 * (time.monotonic() - begun):.0f} ms")


def check_kit(folder: Path) -> Iterator[Finding]:
    """Check the kit of a server or a site: certificates, keys, policy, rows, and the way to the SuperLink."""
    try:
        from fedmerit.flower.keys import AUTHORITY
        from fedmerit.flower.kit import NODE_CONFIG, NODE_KEY, POLICY_FILE, read_kit

        kit = read_kit(folder)
    except (ImportError, UserError) as error:
        yield Finding("kit", "failed", str(error))
        return
    if NODE_CONFIG in kit.variables:
        yield _tried(AUTHORITY, lambda: _ends(kit.folder / AUTHORITY))
        yield _tried(NODE_KEY, lambda: _private(kit.folder / NODE_KEY))
        yield _tried(POLICY_FILE, lambda: _policy(kit.folder / POLICY_FILE))
        if kit.rows is not None:
            found = os.access(kit.rows, os.R_OK)
            text = f"{kit.rows} can be read" if found else f"{kit.rows} cannot be read; correct {kit.folder}/node.env"
            yield Finding("rows", "ok" if found else "failed", text)
    else:
        yield from check_certificates(kit.folder)
    yield _tried("superlink", lambda: check_superlink(kit.address, kit.folder / AUTHORITY))


def _policy(path: Path) -> Finding:
    from fedmerit.flower.policy import read_policy

    return Finding(path.name, "ok", f"{read_policy(path).model_dump(exclude_defaults=True)}")
