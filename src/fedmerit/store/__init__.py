"""What a run leaves on disk: folder, ledger, models."""
