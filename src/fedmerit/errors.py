"""What can go wrong, as one tree.

FedmeritError
├── UserError        the caller can put it right; the command line exits with 2 and shows no traceback
│   ├── ConfigError  a setting is unknown, missing or out of range
│   ├── UnknownName  a name that is in no table (lists the valid ones)
│   ├── TableError   a table of criteria that cannot be scored
│   ├── DataError    data that is missing, truncated or does not fit the settings
│   └── FolderError  a folder that exists already, or that is not a run
├── RunStopped       somebody asked the run to stop; it can be resumed; the command line exits with 130
└── RunFailed        the run itself could not continue; the command line exits with 1

NoteWarning (a UserWarning) is not an error: what a run in Python has to say of its weights and of who was left out.

Every message says the rule, what was received and the way out.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class FedmeritError(Exception):
    """Anything this package raises on purpose; the message says the rule, what was received and the way out.

    >>> try:
    ...     raise UnknownName("score", "owe", ["owa", "product"])
    ... except FedmeritError as error:
    ...     print(error)
    unknown score 'owe' (did you mean 'owa'?); valid: owa, product
    """


class UserError(FedmeritError):
    """A mistake that the caller can put right: a setting, a name, a table, data or a folder.

    >>> from fedmerit import prioritized
    >>> try:
    ...     prioritized()
    ... except UserError as error:
    ...     print(error)
    a recipe has at least one criterion
    """


class ConfigError(UserError):
    """A setting is unknown, missing or out of range."""


class UnknownName(UserError):
    """A name that is in no table."""

    def __init__(self, kind: str, got: str, valid: Iterable[str]) -> None:
        names = sorted(valid)
        super().__init__(f"unknown {kind} {got!r:.200}{did_you_mean(got, names)}; valid: {', '.join(names)}")


class TableError(UserError):
    """A table of criteria that cannot be scored."""


class DataError(UserError):
    """Data that is missing, truncated or does not fit the settings."""


class FolderError(UserError):
    """A folder that exists already, or that is not a run."""


class RunStopped(FedmeritError):
    """Somebody asked the run to stop; it can be resumed."""


class RunFailed(FedmeritError):
    """The run could not continue."""


class NoteWarning(UserWarning):
    """What a user should know of a run that goes on: a note on its weights, or a client that was left out."""


def did_you_mean(got: str, valid: Iterable[str]) -> str:
    """' (did you mean ...?)' for a near miss, else an empty string."""
    by_lower = {name.lower(): name for name in valid}
    near = difflib.get_close_matches(got.lower(), by_lower, n=1, cutoff=0.6)
    return f" (did you mean {by_lower[near[0]]!r}?)" if near else ""
