"""From a table of criteria to weights."""
