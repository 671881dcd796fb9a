"""Measurements behind docs/results, each a module: `python -m reproductions.experiments.NAME`."""
