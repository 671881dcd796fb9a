"""The command line: parse, call, print."""

from fedmerit.cli.app import app, main

# --help lists the commands in the order of these imports
# isort: off
from fedmerit.cli import runs, facts, weigh, models, privacy, studies, tuning, attacks, contributions, flower, lists
# isort: on

__all__ = [
    "app",
    "attacks",
    "contributions",
    "facts",
    "flower",
    "lists",
    "main",
    "models",
    "privacy",
    "runs",
    "studies",
    "tuning",
    "weigh",
]
