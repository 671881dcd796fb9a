"""A SuperNode that answers quickly: Flower's own, with a starter for its ClientApps at its side.

    python -m fedmerit.flower.supernode --superlink HOST:PORT ...      # the words of flower-supernode

The process puts the starter's folder on its PATH and becomes `flower-supernode`; the starter ends with it.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Sequence

from fedmerit.flower.channel import Broken, is_possible
from fedmerit.flower.starter import BIN, make_folder

POLLING = "FLWR_SUPEREXEC_TASK_POLL_INTERVAL"
"""Seconds after which a SuperExec asks again whether there is something to start: 1 by itself."""
OFTEN = "0.2"
log = logging.getLogger("flwr")


def become_supernode(words: Sequence[str]) -> None:
    """Start a starter that lives as long as we, and become `flower-supernode`; plainly so where no starter can be."""
    os.environ.setdefault(POLLING, OFTEN)
    command, owner = str(BIN / "flower-supernode"), os.getpid()
    if is_possible():
        try:
            folder = make_folder(owner)
        except (Broken, OSError) as error:
            log.warning("fedmerit: no starter for ClientApps, they are started one by one: %s", error)
        else:
            os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
            start = [sys.executable, "-P", "-m", "fedmerit.flower.starter", str(folder), str(owner)]
            subprocess.Popen(start, stdin=subprocess.DEVNULL)
    sys.stdout.flush()
    os.execv(command, [command, *words])


if __name__ == "__main__":
    become_supernode(sys.argv[1:])
