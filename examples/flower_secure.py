"""A secure deployment on loopback: TLS, keys of nodes and of the operator, and who is refused; then a run.

`make flower-secure` calls it. docs/deploy.md has the same deployment on several machines.
"""

import sys
import tempfile
import time
from pathlib import Path

from fedmerit.flower.keys import make_authority, make_node_key
from fedmerit.flower.loopback import Loopback, loopback, partitions, write_connection

NODES = 2
APP = Path(__file__).parent / "flower-quickstart"


def strangers(made: Loopback) -> dict[str, str]:
    """Start nodes that must not get in: what the SuperLink's door does to each, by name."""
    config, known = partitions(NODES)[0], made.folder / "kits" / "node0" / "node"
    unknown = make_node_key(made.folder / "keys", "unknown")
    make_authority(made.folder / "other")
    wrong = made.folder / "other" / "ca.crt"
    ours, private = made.trust(), "--auth-supernode-private-key"
    made.start_supernode("unregistered key", config, *ours, private, str(unknown))
    made.start_supernode("no key", config, *ours)
    made.start_supernode("wrong authority", config, "--root-certificates", str(wrong), private, str(known))
    made.start_supernode("plain text", config, "--insecure", "--max-retries", "3")
    names = ("unregistered key", "no key", "wrong authority", "plain text")
    return {name: _end(made, name) for name in names}


def without_the_key(made: Loopback) -> dict[str, str]:
    """Ask for things with host, port and the authority's certificate, but without the operator's key."""
    ours, home = made.folder, made.folder / "stranger"
    write_connection(home / "home", made.address, made.folder / "kits" / "server" / "ca.crt")
    # no launchers: what our fork server forks has our home, and the operator's key in it
    stranger = Loopback(home, port=made.port)
    key = make_node_key(ours / "keys", "stranger")
    asked = {
        "a run": ("flwr", "run", str(APP), "here"),
        "a node of his": ("flwr", "supernode", "register", f"{key}.pub", "here"),
        "the list of runs": ("flwr", "list", "here"),
    }
    ends = {}
    for name, command in asked.items():
        said = stranger.call(*command)
        ends[name] = "refused" if "uthenticat" in said or "Unauthorized" in said else f"UNCLEAR: {said[-500:]}"
    made.start("superexec of his", "flower-superexec", *made.trust(), "--runtime-api-address", made.address)
    made.wait_for("superlink", "SuperExec authentication failed")
    ends["ServerApps of ours"] = "refused"
    return ends


def _end(made: Loopback, name: str, seconds: float = 120.0) -> str:
    """How a stranger's process ended: refused, or (which must not be) let in."""
    ends = time.monotonic() + seconds
    while made.processes[name].poll() is None and time.monotonic() < ends:
        if "SuperNode ID" in made.log(name):
            return "LET IN"
        time.sleep(0.2)
    _, _, reason = made.log(name).partition("Failed to initialize the connection to the SuperLink.")
    return f"refused: {reason.strip().splitlines()[0]}" if reason else f"UNCLEAR: {made.log(name)[-300:]}"


def main() -> None:
    """Start, be refused, run."""
    with tempfile.TemporaryDirectory(prefix="fedmerit-") as folder:
        print(f"starting a SuperLink with TLS and {NODES} SuperNodes with registered keys", flush=True)
        with loopback(Path(folder), NODES, secure=True) as made:
            ends = strangers(made) | without_the_key(made)
            for name, how in ends.items():
                print(f"  {name}: {how}", flush=True)
            print(f"running {APP.name} on the two that are admitted", flush=True)
            made.run(APP)
            made.processes["run"].wait(600)
            said = [line for line in made.log("run").splitlines() if line.startswith("round")]
            print("\n".join(f"  {line}" for line in said))
            if not said or not all(how.startswith("refused") for how in ends.values()):
                sys.exit("not as it should be: see above")


if __name__ == "__main__":
    main()
