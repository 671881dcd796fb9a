"""Which versions of Flower are tested.

`Merit` uses Flower's public interface and works on later versions with a warning. `fedmerit flower`, which starts
Flower's processes and replaces parts of them, refuses them.
"""

import logging
import re
from functools import cache
from importlib.metadata import version

from fedmerit.errors import ConfigError

OLDEST, NEWEST = "1.40", "1.42"
"""The tested minor versions; `make test-flower-versions` runs Merit's tests on the first and on the newest release."""


def untested_version(installed: str | None = None) -> str | None:
    """The installed version of Flower if it is later than the tested ones, else None.

    >>> untested_version("1.42.3"), untested_version("1.43rc1"), untested_version("2.0.0")
    (None, '1.43rc1', '2.0.0')
    """
    installed = version("flwr") if installed is None else installed
    numbers, newest = (list(map(int, re.findall(r"\d+", text)[:2])) for text in (installed, NEWEST))
    return installed if numbers > newest else None


@cache
def warn_if_untested() -> None:
    """Log a warning if Flower is later than the tested versions; once per process."""
    if found := untested_version():
        text = "Merit is tested with flwr %s to %s (installed: %s); if it fails, install flwr==%s.*"
        logging.getLogger("flwr").warning(text, OLDEST, NEWEST, found, NEWEST)


def require_tested() -> None:
    """Refuse versions of Flower that are later than the tested ones."""
    if found := untested_version():
        raise ConfigError(
            f"`fedmerit flower` replaces parts of Flower's processes and needs flwr {OLDEST} to {NEWEST} (installed: "
            f"{found}); run: pip install 'flwr=={NEWEST}.*'"
        )
