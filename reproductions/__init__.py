"""The papers' tables, their errata and our experiments; `python -m reproductions --list` from the repository's root."""
