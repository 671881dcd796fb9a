"""The command line: parse, call, print."""

from fedmerit.cli import (
    doctor,
    facts,
    flower,
    init,
    lists,
    models,
    privacy,
    runs,
    studies,
    weigh,
)
from fedmerit.cli.app import app, main

__all__ = [
    "app",
    "doctor",
    "facts",
    "flower",
    "init",
    "lists",
    "main",
    "models",
    "privacy",
    "runs",
    "studies",
    "weigh",
]
