"""The command line: parse, call, print."""

from fedmerit.cli import doctor, explain, flower, init, lists, models, runs, studies, weigh, what_if
from fedmerit.cli.app import app, main

__all__ = [
    "app",
    "doctor",
    "explain",
    "flower",
    "init",
    "lists",
    "main",
    "models",
    "runs",
    "studies",
    "weigh",
    "what_if",
]
