"""Runs: rounds one after the other, stopped, resumed."""
