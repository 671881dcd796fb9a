"""Kits: a folder for the server and one for each site, with all that its machine needs.

`fedmerit flower provision` makes an authority, the server's kit, and per site a key, an enrolment and a kit. A second
call on the same folder adds new sites, gives a site without a key another one, and renews the server's certificate.
"""

import re
import shlex
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedmerit.config.own import is_own
from fedmerit.errors import ConfigError, FolderError
from fedmerit.flower.admission import EnrolledClient, Enrolment, read_enrolment, read_fingerprint, write_enrolment
from fedmerit.flower.keys import (
    AUTHORITY,
    AUTHORITY_KEY,
    SERVER,
    SERVER_KEY,
    make_authority,
    make_node_key,
    make_operator_key,
    sign_server,
)
from fedmerit.store.files import write_new_file

SERVER_ENV, NODE_ENV, POLICY_FILE, NODES = "server.env", "node.env", "policy.toml", "nodes"
OPERATOR_KEY, NODE_KEY, ENROLLED = "operator.key", "node", "enrolled.toml"
"""The key with which runs are started, a site's private key, the list of clients and their keys."""
ADDRESS, NODE_CONFIG, PORT = "SUPERLINK", "NODE_CONFIG", "PORT"
"""Variables of server.env and node.env: HOST:PORT of the SuperLink, Flower's --node-config, the node's own port."""
ROWS = "/data/rows.parquet"
"""The file with a site's rows, until its start script gets another one."""
INSTALLED, SERVICES = "/etc/fedmerit", "/etc/systemd/system"

POLICY_TEXT = """\
# What this node answers, whatever the server requests. Each answer is a line of `log`.
min_rows = 10                # no answer from fewer rows
log = "answers.jsonl"        # in the folder where the node starts; /var/lib/fedmerit for the service
apps = "fedmerit"            # "any": also apps that bring their own code
# recipes = ["fedavg", "prioritized"]       # default: every recipe
# modules = ["our_parts"]                   # modules whose parts a configuration may name; default: none
# trusted_entities = "trusted.yaml"         # only apps that one of these keys signed (Flower's --trusted-entities)

# [facts]                    # only these facts leave the node, each rounded down to a multiple; 0: exact
# samples = 10
# labels = 0
# balance = 0.05
"""

UNIT = """\
[Unit]
Description={about}
After=network-online.target
Wants=network-online.target

[Service]
User=fedmerit
StateDirectory=fedmerit
StateDirectoryMode=0750
WorkingDirectory=/var/lib/fedmerit
Environment=FLWR_HOME=/var/lib/fedmerit/flower
ExecStart=/opt/fedmerit/bin/{command}
Restart=always
RestartSec=5
UMask=0077
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ProtectHome=yes
ProtectProc=invisible
ProtectClock=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectControlGroups=yes
PrivateTmp=yes
PrivateDevices=yes
PrivateUsers=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
RemoveIPC=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
"""
"""A unit. It does not set MemoryDenyWriteExecute or ProcSubset: torch compiles code and reads /proc/cpuinfo."""

PYTHON = "python -m fedmerit.flower"
UNITS: Mapping[str, tuple[str, str]] = {
    "superlink": ("SuperLink of a fedmerit federation", f"{PYTHON}.superlink --kit {INSTALLED}"),
    "superexec": ("SuperExec of a fedmerit federation: starts ServerApps", f"{PYTHON}.superexec --kit {INSTALLED}"),
    "supernode": ("SuperNode of a fedmerit federation", f"{PYTHON}.supernode --kit {INSTALLED}"),
}
"""By process: its description, and its command in the environment's folder of programs."""
SITE_START = f"""\
#!/bin/sh
# Start this site's node:             sh start.sh [ROWS]
# As root, install it as a service:   sh start.sh --install [ROWS]
# ROWS, the file with this site's rows, is then written to {NODE_ENV}.
set -eu
kit=$(cd "$(dirname "$0")" && pwd)
action=${{1-}}
[ "$action" != --install ] || shift
[ $# -eq 0 ] || sed -i "s|data='[^']*'|data='$(realpath "$1")'|" "$kit/{NODE_ENV}"
if [ "$action" = --install ]; then
    id fedmerit >/dev/null 2>&1 || useradd --system --user-group fedmerit
    mkdir -p {INSTALLED}
    cp -R "$kit/." {INSTALLED}
    chown -R fedmerit: {INSTALLED}
    cp "$kit"/*.service {SERVICES}
    exec systemctl enable --now fedmerit-supernode
fi
cd "$kit"
exec fedmerit flower node --kit "$kit"
"""
SERVER_START = f"""\
#!/bin/sh
# Start SuperLink and SuperExec:          sh start.sh [CONFIG.toml --out DIR]
# As root, install them as services:      sh start.sh --install [CONFIG.toml --out DIR]
# With CONFIG.toml, `fedmerit flower run` follows.
set -eu
kit=$(cd "$(dirname "$0")" && pwd)
if [ "${{1-}}" = --install ]; then
    shift
    id fedmerit >/dev/null 2>&1 || useradd --system --user-group fedmerit
    mkdir -p {INSTALLED}
    cp -R "$kit/." {INSTALLED}
    chown -R fedmerit: {INSTALLED}
    cp "$kit"/*.service {SERVICES}
    systemctl enable --now fedmerit-superlink fedmerit-superexec
    kit={INSTALLED}
else
    python=$(dirname "$(command -v fedmerit)")/python
    mkdir -p "$kit/state"
    for process in superlink superexec; do
        (cd "$kit/state" && exec "$python" -m fedmerit.flower.$process --kit "$kit") >>"$kit/$process.log" 2>&1 &
        started="${{started-}} $!"
    done
    trap 'kill $started 2>/dev/null' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
fi
[ $# -eq 0 ] || fedmerit flower run "$@" --kit "$kit" || true
wait
"""


@dataclass(frozen=True, slots=True)
class Kit:
    """The folder of a server or of a site, and the variables of its server.env or node.env."""

    folder: Path
    variables: Mapping[str, str]

    @property
    def address(self) -> str:
        """HOST:PORT of the SuperLink."""
        return self.variables[ADDRESS]

    @property
    def rows(self) -> Path | None:
        """The file with the site's rows; None for a simulated client, or rows that are not a file."""
        found = re.search("data='([^']*)'", self.variables.get(NODE_CONFIG, ""))
        return Path(found[1]) if found and not is_own(found[1]) else None

    @property
    def node_config(self) -> str:
        """The configuration of the site's node: with the roster, it checks its partners' keys (kept.py)."""
        roster = self.folder / ENROLLED
        keys = f" roster='{roster}' key='{self.folder / NODE_KEY}'" if roster.is_file() else ""
        return self.variables[NODE_CONFIG] + keys

    def superlink_words(self) -> list[str]:
        """The options of `python -m fedmerit.flower.superlink`."""
        words: dict[str, object] = {"database": "link.db", "host": "0.0.0.0", "port": self.address.rpartition(":")[2]}
        words |= {"ssl-ca-certfile": self.folder / AUTHORITY, "ssl-certfile": self.folder / SERVER}
        words |= {"ssl-keyfile": self.folder / SERVER_KEY}
        return [
            *("--superexec-auth-secret-file", str(self.folder / OPERATOR_KEY), "--isolation", "process"),
            *("--enable-supernode-auth", *(f"--{name}={value}" for name, value in words.items())),
        ]

    def superexec_words(self) -> list[str]:
        """The options of `python -m fedmerit.flower.superexec`, which connects by the name in the certificate."""
        return [
            *("--superexec-auth-secret-file", str(self.folder / OPERATOR_KEY)),
            *("--root-certificates", str(self.folder / AUTHORITY), "--runtime-api-address", self.address),
        ]

    def node_words(self) -> list[str]:
        """The options of `fedmerit flower node`."""
        words: dict[str, object] = {"superlink": self.address, "root-certificates": self.folder / AUTHORITY}
        words |= {"policy": self.folder / POLICY_FILE, "auth-supernode-private-key": self.folder / NODE_KEY}
        words |= {"port": self.variables.get(PORT, "9094"), "node-config": self.node_config}
        return [f"--{name}={value}" for name, value in words.items()]


def read_kit(folder: Path) -> Kit:
    """Read the kit of a server or of a site."""
    folder = folder.absolute()
    file = next((folder / name for name in (SERVER_ENV, NODE_ENV) if (folder / name).is_file()), None)
    if file is None:
        raise FolderError(
            f"{folder} is not a kit: it has no {SERVER_ENV} or {NODE_ENV}; give a folder of `fedmerit flower provision`"
        )
    variables = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition("=")
        if value and not line.lstrip().startswith("#"):
            variables[name.strip()] = "".join(shlex.split(value))
    missing = {ADDRESS, *([NODE_CONFIG] if file.name == NODE_ENV else [])} - variables.keys()
    if missing:
        raise ConfigError(f"{file} has no {' and no '.join(sorted(missing))}; add {ADDRESS}=HOST:PORT as in a new kit")
    return Kit(folder, variables)


def expand_kit(words: Sequence[str], options: Callable[[Kit], list[str]]) -> list[str]:
    """Replace `--kit DIR` by the options of the kit; later options win over them."""
    folder, rest = take_option(words, "--kit")
    return rest if folder is None else [*options(read_kit(Path(folder))), *rest]


def take_option(words: Sequence[str], name: str) -> tuple[str | None, list[str]]:
    """Take the value of an option out of the words of a command; None if it is not there.

    >>> take_option(["--kit=a", "--port", "1"], "--kit"), take_option(["--port", "1"], "--kit")
    (('a', ['--port', '1']), (None, ['--port', '1']))
    """
    rest = [part for word in words for part in (word.split("=", 1) if word.startswith(f"{name}=") else [word])]
    if name not in rest[:-1]:
        return None, rest
    place = rest.index(name)
    return rest[place + 1], rest[:place] + rest[place + 2 :]


def provision(clients: Sequence[tuple[str, str]], host: str, port: int, out: Path) -> list[Path]:
    """Make or update the kits of a server at `host` and of these clients, each a name and its node's configuration.

    Files with keys are never overwritten. A key that a site put in place of its node.pub replaces the enrolled one.
    """
    authority, server, address = out / "authority", out / "server", f"{host}:{port}"
    if (server / SERVER_ENV).exists() and read_kit(server).address != address:
        raise ConfigError(f"{out} is for {read_kit(server).address} (got {address}); give another --out")
    if not (authority / AUTHORITY_KEY).exists():
        make_authority(authority)
    sign_server(authority, server, host)
    if not (server / OPERATOR_KEY).exists():
        make_operator_key(server / OPERATOR_KEY)
    _write_kit(server, authority, SERVER_START, ("superlink", "superexec"), {SERVER_ENV: f"{ADDRESS}={address}\n"})
    enrolment, sites = read_enrolment(server / ENROLLED) if (server / ENROLLED).exists() else Enrolment(), []
    (server / NODES).mkdir(exist_ok=True)
    for client, ((name, config), folder) in enumerate(zip(clients, _folder_names(clients), strict=True)):
        site, public = out / folder, out / folder / "node.pub"
        if not public.exists():
            make_node_key(site, NODE_KEY)
        key, old = read_fingerprint(public), enrolment.active.get(client)
        if old is None or old.key != key:
            enrolment = enrolment if old is None else enrolment.without(client)
            enrolment = enrolment.with_client(EnrolledClient(client=client, key=key, name=name))
        (server / NODES / f"{folder}.pub").write_bytes(public.read_bytes())
        files = {NODE_ENV: f'{ADDRESS}={address}\nPORT=9094\n{NODE_CONFIG}="{config}"\n', POLICY_FILE: POLICY_TEXT}
        _write_kit(site, authority, SITE_START, ("supernode",), files)
        sites.append(site)
    for place in (server, *sites):
        write_enrolment(place / ENROLLED, enrolment)
    return sites


def _write_kit(folder: Path, authority: Path, start: str, units: Iterable[str], files: Mapping[str, str]) -> None:
    """Write what every kit has; `files` may be edited afterwards and are not overwritten."""
    written = {"start.sh": start, AUTHORITY: (authority / AUTHORITY).read_text(encoding="ascii")}
    for process in units:
        about, command = UNITS[process]
        written[f"fedmerit-{process}.service"] = UNIT.format(about=about, command=command)
    written |= {name: text for name, text in files.items() if not (folder / name).exists()}
    for name, text in written.items():
        write_new_file(folder / name, text)


def _folder_names(clients: Sequence[tuple[str, str]]) -> list[str]:
    """Make a distinct folder name from the name of each client.

    >>> _folder_names([("Hospital 3", ""), ("hospital-3", ""), ("Server", "")])
    ['hospital-3', 'hospital-3-1', 'server-2']
    """
    names = ["authority", "server"]
    for client, (name, _) in enumerate(clients):
        plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
        short = re.sub("[^a-z0-9]+", "-", plain).strip("-") or "site"
        names.append(f"{short}-{client}" if short in names else short)
    return names[2:]
