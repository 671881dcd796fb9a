"""The commands of the documents run, in the order of the page, and print what the page shows.

A block ```sh has a command per line; a block ```text right after it, or after ```python, is the last output. A line
`...` stands for lines that the page leaves out. Numbers may differ by 2 %: processors round differently. A block ```sh
with a title is not run.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from helpers import CommandLine

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "AGENTS.md", "llms.txt", "docs/index.md", "docs/first-weights.md", "docs/first-run.md")
FENCE = re.compile(r"^```(\w+)(.*?)\n(.*?)^```$", flags=re.M | re.S)
ELSEWHERE = ("make", ".", "flwr", "pip", "git")
"""Programs that other tests run: set-up in every check, Flower's runs in tests/flower."""


def blocks(text: str) -> list[tuple[str, str]]:
    """Language and content of each block; in a page without fences, indented lines are commands."""
    fenced = [(kind, content) for kind, options, content in FENCE.findall(text) if not options.strip()]
    indented = "".join(f"{line}\n" for line in re.findall(r"^ {4}(fedmerit .*)$", text, flags=re.M))
    return fenced or [("sh", indented)]


def commands(content: str) -> Iterator[tuple[str, list[str]]]:
    """Each command with its words; one with an open quote goes on in the next line."""
    command = ""
    for line in content.splitlines():
        command += line
        try:
            yield command, shlex.split(command, comments=True)
            command = ""
        except ValueError:
            command += "\n"


def prints(shown: str, printed: str) -> bool:
    """Whether the words of the shown lines are printed in this order; numbers need agree to 2 %."""
    parts = [part.split() for part in re.split(r"^\.\.\.$", shown, flags=re.M)]
    words, start = printed.split(), 0
    for part in parts:
        ends = (at + len(part) for at in range(start, len(words)) if all(map(alike, part, words[at : at + len(part)])))
        if (end := next(ends, None)) is None:
            return False
        start = end
    return True


def alike(shown: str, printed: str) -> bool:
    number = r"-?\d+(?:\.\d+)?"
    values = [[float(value) for value in re.findall(number, word)] for word in (shown, printed)]
    return re.sub(number, "#", shown) == re.sub(number, "#", printed) and values[1] == pytest.approx(
        values[0], rel=0.02, abs=0.02
    )


@pytest.mark.parametrize("name", PAGES)
def test_commands_run_and_print_what_the_page_shows(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    page, printed, run = (ROOT / name).read_text(encoding="utf-8"), "", 0
    for (kind, content), following in pairwise([*blocks(page), ("", "")]):
        for line, words in commands(content) if kind == "sh" else ():
            if words[:1] == ["fedmerit"]:
                answer = cli(*words[1:])
                assert answer.code == 0, f"{line}\n{answer.err}"
                printed, run = answer.out, run + 1
            elif words and words[0] not in ELSEWHERE:
                subprocess.run(line, shell=True, check=True)
        if kind == "python":
            exec(compile(content, name, "exec", dont_inherit=True), {})
            printed = cli.capsys.readouterr().out
        if kind in ("sh", "python") and following[0] == "text":
            assert prints(following[1], printed), f"{content}\nprints\n{printed}"
    assert run > 0
