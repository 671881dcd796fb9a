"""The tree of exceptions.

FedmeritError
├── UserError        the caller can fix it; the command line exits with 2 and shows no traceback
│   ├── ConfigError  a setting is unknown, missing or out of range
│   │   └── UntrustedPart  a run folder names code that was not run on this machine before
│   ├── UnknownName  an unknown name; the message lists the valid ones
│   ├── TableError   a table of criteria that cannot be scored
│   ├── DataError    data that is missing, truncated or does not fit the settings
│   └── FolderError  a folder that exists already, or that is not a run
├── RunStopped       the user stopped the run; it can be resumed; the command line exits with 130
└── RunFailed        the run could not continue; the command line exits with 1

NoteWarning (a UserWarning) is not an error: a note on the weights of a run, or on a client that was dropped.

Every message says what is wrong, what was received and what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class FedmeritError(Exception):
    """Base class of the exceptions of fedmerit.

    >>> try:
    ...     raise UnknownName("score", "owe", ["owa", "product"])
    ... except FedmeritError as error:
    ...     print(error)
    unknown score 'owe' (did you mean 'owa'?); valid: owa, product
    """


class UserError(FedmeritError):
    """A mistake that the caller can fix: a setting, a name, a table, data or a folder.

    >>> from fedmerit import prioritized
    >>> try:
    ...     prioritized()
    ... except UserError as error:
    ...     print(error)
    a recipe needs at least one criterion (got none); for example prioritized("LD", "DS")
    """


class ConfigError(UserError):
    """A setting is unknown, missing or out of range."""


class UntrustedPart(ConfigError):
    """A run folder names code that was not run on this machine before."""


class UnknownName(UserError):
    """An unknown name; the message lists the valid ones."""

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
    """The user stopped the run; it can be resumed."""


class RunFailed(FedmeritError):
    """The run could not continue."""


class NoteWarning(UserWarning):
    """A note on a run that continues: on its weights, or on a client that was dropped."""


def did_you_mean(got: str, valid: Iterable[str]) -> str:
    """' (did you mean ...?)' for a name close to a valid one, else an empty string."""
    by_lower = {name.lower(): name for name in valid}
    near = difflib.get_close_matches(got.lower(), by_lower, n=1, cutoff=0.6)
    return f" (did you mean {by_lower[near[0]]!r}?)" if near else ""
