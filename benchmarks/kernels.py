"""The table of src/fedmerit/learn/kernels.py for this machine: which layout and which product are faster here?

.venv/bin/python benchmarks/kernels.py               # both instruction sets, one process
.venv/bin/python benchmarks/kernels.py --at-once 2   # as in a run: a process per core, and they share the memory
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping
from itertools import product
from time import process_time
from unittest.mock import patch

import machine
import torch

from fedmerit.fleet.pool import keep_memory
from fedmerit.learn import stack
from fedmerit.learn.flat import FlatModule
from fedmerit.learn.kernels import Kernels
from fedmerit.learn.models import find_model

WORKS = (("mnist-cnn", 10), ("mnist-cnn", 100), ("femnist-cnn", 10), ("celeba-cnn", 10))
INPUTS = {"celeba-cnn": (3, 64, 64)}
IMAGES = 300  # of one timing
KERNELS = {
    f"{'last' if last else 'first'}, {'oneDNN' if fused else 'addmm'}": Kernels(last, fused)
    for last, fused in product((False, True), repeat=2)
}


def milliseconds(model: str, batch: int, times: int) -> Mapping[str, float]:
    """CPU milliseconds of an SGD step with each of the kernels, taken in turn; the least of several."""
    stacks = {}
    for name, kernels in KERNELS.items():
        with patch.object(stack, "find_kernels", lambda chosen=kernels: chosen):
            stacks[name] = FlatModule(find_model(model)()).stack
    x = torch.rand(batch, *INPUTS.get(model, (1, 28, 28))).contiguous(memory_format=torch.channels_last)
    y = torch.zeros(batch, dtype=torch.long)
    took: dict[str, list[float]] = {name: [] for name in KERNELS}
    steps = max(IMAGES // batch, 1)
    for _ in range(times + 1):
        for name, written in stacks.items():
            before = process_time()
            for _ in range(steps):
                written.backward(written.forward(x.clone()), y, 1 / batch, 1e-6)
            took[name].append(1000 * (process_time() - before) / steps)
    return {name: min(values[1:]) for name, values in took.items()}


def measure(times: int) -> None:
    """A line of the table per work."""
    torch.set_num_threads(1)
    keep_memory()
    isa = torch.backends.cpu.get_cpu_capability()
    with torch.no_grad():
        for model, batch in WORKS:
            cells = (f"{value:.3g}" for value in milliseconds(model, batch, times).values())
            size = "" if batch == 10 else f" at {batch}"
            print("|", " | ".join((f"{isa}, {model}{size}", *cells)), "|", flush=True)


def main() -> None:
    """The table; each instruction set in processes of its own, of which the last one tells."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=9, help="how often each is timed (default 9)")
    parser.add_argument("--at-once", type=int, default=1, help="processes that do so at the same time (default 1)")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        measure(options.times)
        return
    print(machine.facts()["CPU"])
    print("| |", " | ".join(KERNELS), "|\n|", " | ".join(["---"] * (1 + len(KERNELS))), "|", flush=True)
    command = [sys.executable, __file__, "--here", "--times", str(options.times)]
    for variables in ({}, machine.AVX2) if machine.has_avx512() else ({},):
        beside = [
            subprocess.Popen(command, env=os.environ | variables, stdout=subprocess.DEVNULL)
            for _ in range(options.at_once - 1)
        ]
        subprocess.run(command, env=os.environ | variables, check=True)
        for process in beside:
            process.wait()


if __name__ == "__main__":
    main()
