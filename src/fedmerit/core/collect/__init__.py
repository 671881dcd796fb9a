"""Who takes part in a round, and which answers count in it."""
