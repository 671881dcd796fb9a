"""A SuperLink that requires the operator's key to start a run, register a node or run a ServerApp.

    python -m fedmerit.flower.superlink --kit DIR                   # of `fedmerit flower provision`
    python -m fedmerit.flower.superlink --superexec-auth-secret-file operator.key --isolation process ...

accepts the options of `flower-superlink`; a kit stands for all of them, and its nodes are registered. Without a key,
everybody who can connect to Flower's SuperLink can start runs, which execute code on every SuperNode, and register keys
of nodes. Flower has a plugin interface for accounts; this plugin has one account with one key. The same file is the
secret of `flower-superexec`.

It also has longer timeouts: if many nodes write to the database at once, a request waits instead of failing, and a
ServerApp without a heartbeat during that time is not aborted.
"""

import hmac
import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_public_key
from flwr.cli.constant import ACCESS_TOKEN_STORE_KEY, AUTHN_TYPE_STORE_KEY, REFRESH_TOKEN_STORE_KEY
from flwr.common.constant import (
    ACCESS_TOKEN_KEY,
    HEARTBEAT_DEFAULT_INTERVAL,
    NOOP_ACCOUNT_NAME,
    NOOP_FLWR_AID,
    AuthnType,
)
from flwr.supercore.auth.typing import AccountAuthCredentials, AccountAuthLoginDetails, AccountInfo
from flwr.supercore.credential_store.file_credential_store import FileCredentialStore
from flwr.superlink import config_loader
from flwr.superlink.auth_plugin import ControlAuthnPlugin

from fedmerit.config.reading import read_file
from fedmerit.engine.logs import as_json, start_logs
from fedmerit.errors import ConfigError, UserError
from fedmerit.flower.kit import NODES, Kit, expand_kit, take_option
from fedmerit.flower.supernode import QUIET
from fedmerit.flower.versions import require_tested

KEY_OPTION, ISOLATION = "--superexec-auth-secret-file", "--isolation"
MIN_CHARACTERS, MAX_CHARACTERS = 32, 512
"""Limits of a key's length: a shorter key could be guessed, a longer one does not fit into a header."""
BUSY_TIMEOUT = ("busy_timeout", "60000")
"""Milliseconds that a request waits for the database. With Flower's 5000 and fifty nodes on few cores, requests fail
with "database is locked", and nodes give up."""
HEARTBEAT_SECONDS = 150
"""Seconds in which a ServerApp must start; it is aborted after twice as long. With Flower's 30, busy runs end early."""


def read_operator_key(path: Path) -> str:
    """Read an operator's key from a file that only its owner can read."""
    try:
        mode = path.stat().st_mode & 0o077
        text = read_file(path, MAX_CHARACTERS, ConfigError).decode("ascii", "replace")
    except OSError as error:
        raise ConfigError(f"cannot read the operator's key {path}: {error.strerror}") from None
    if not (text.isascii() and text.isalnum() and len(text) >= MIN_CHARACTERS):
        raise ConfigError(
            f"{path} is not an operator's key, which is at least {MIN_CHARACTERS} letters and digits without a line "
            "break; `fedmerit flower provision` makes one"
        )
    if mode:
        raise ConfigError(f"other users can read or write {path}; run: chmod 600 {path}")
    return text


def log_in(home: Path, address: str, key: str) -> None:
    """Store the key for the SuperLink at this address in Flower's home folder, where `flwr` reads it."""
    home.mkdir(parents=True, exist_ok=True)
    store = FileCredentialStore(home / "credentials.yaml")
    store.set(AUTHN_TYPE_STORE_KEY % address, AuthnType.OIDC.encode())
    for name in (ACCESS_TOKEN_STORE_KEY, REFRESH_TOKEN_STORE_KEY):
        store.set(name % address, key.encode())


def plugin_for(key: str) -> type[ControlAuthnPlugin]:
    """Make a plugin for Flower's account authentication with one account, whose token is the key."""

    class OperatorAuthn(ControlAuthnPlugin):
        """Accept every request that has the key."""

        def __init__(self) -> None:
            pass

        def get_login_details(self) -> AccountAuthLoginDetails | None:
            """None: there is no login; people pass on the key themselves."""
            return None

        def validate_tokens_in_metadata(
            self, metadata: Sequence[tuple[str, str | bytes]]
        ) -> tuple[bool, AccountInfo | None]:
            """Whether the token is the key, compared in constant time."""
            given = dict(metadata).get(ACCESS_TOKEN_KEY, "")
            given = given if isinstance(given, bytes) else given.encode()
            if not hmac.compare_digest(given, key.encode()):
                return False, None
            return True, AccountInfo(flwr_aid=NOOP_FLWR_AID, account_name=NOOP_ACCOUNT_NAME)

        def get_auth_tokens(self, device_code: str) -> AccountAuthCredentials | None:
            """None: the SuperLink never sends the key."""
            return None

        def refresh_tokens(
            self, metadata: Sequence[tuple[str, str | bytes]]
        ) -> tuple[Sequence[tuple[str, str | bytes]] | None, AccountInfo | None]:
            """None: a key does not expire."""
            return None, None

    return OperatorAuthn


def main(arguments: Sequence[str]) -> None:
    """Start Flower's SuperLink with the options of the command line; require the key in the named file."""
    require_tested()
    folder, _ = take_option(arguments, "--kit")
    arguments = expand_kit(arguments, Kit.superlink_words)
    options = [word for argument in arguments for word in argument.split("=", 1)]
    named = {name: value for name, value in pairwise(options) if name in (KEY_OPTION, ISOLATION)}
    if KEY_OPTION not in named or named.get(ISOLATION) != "process":
        raise ConfigError(
            f"{KEY_OPTION} FILE and {ISOLATION} process are required, because the SuperLink's own subprocesses need no "
            "key; add both options"
        )
    plugin = plugin_for(read_operator_key(Path(named[KEY_OPTION])))
    os.environ["FLWR_OIDC_ENABLED"] = "1"  # Flower's switch for accounts
    config_loader.get_control_authn_plugins = lambda: {AuthnType.OIDC: plugin}
    os.environ.update(QUIET)
    sys.argv = ["flower-superlink", *arguments]
    patient_superlink([] if folder is None else sorted((Path(folder) / NODES).glob("*.pub")))


def patient_superlink(node_keys: Sequence[Path] = ()) -> None:
    """Start Flower's SuperLink with longer timeouts for its database and for ServerApps; register these nodes."""
    from flwr.supercore import sql_mixin
    from flwr.supercore.constant import SQLITE_PRAGMAS
    from flwr.supercore.corestate import in_memory_corestate, sql_corestate
    from flwr.superlink import cli

    vars(sql_mixin)["SQLITE_PRAGMAS"] = (*SQLITE_PRAGMAS, BUSY_TIMEOUT)  # the last setting wins
    for tasks in (sql_corestate, in_memory_corestate):  # heartbeats of nodes are in other modules
        vars(tasks)["HEARTBEAT_DEFAULT_INTERVAL"] = HEARTBEAT_SECONDS
    if node_keys:
        from flwr.superlink import main as api

        create_app = api.create_app
        vars(api)["create_app"] = lambda *given: register(create_app(*given), node_keys)
    if start_logs():
        module = vars(importlib.import_module("flwr.superlink.cli.flower_superlink"))
        config = module["get_uvicorn_log_config"]
        module["get_uvicorn_log_config"] = lambda level: as_json(config(level))
    cli.flower_superlink()


def register(api: Any, node_keys: Sequence[Path]) -> Any:
    """Register the nodes with these public keys, as `flwr supernode register` does; known keys stay."""
    state = api.state.linkstate_factory.state()
    for path in node_keys:
        public = load_ssh_public_key(path.read_bytes())
        key = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        with suppress(ValueError):  # it is registered
            state.create_node(NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, key, HEARTBEAT_DEFAULT_INTERVAL, name=path.stem)
    return api


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UserError as error:
        sys.exit(f"error: {error}")
