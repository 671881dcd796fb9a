"""Runs: start, run rounds, stop, resume."""
