"""Footnotes: signs at published numbers that do not hold, and a line below the table that names the erratum."""

from __future__ import annotations

from dataclasses import dataclass

from reproductions.errata import find_erratum

SIGNS = "†‡§¶"


@dataclass(frozen=True, slots=True)
class Footnotes:
    """The errata of one table by name, each with its own sign."""

    names: tuple[str, ...]

    def __call__(self, name: str, text: str = "") -> str:
        """The text followed by the sign of an erratum."""
        return f"{text}{SIGNS[self.names.index(name)]}"

    @property
    def below(self) -> tuple[str, ...]:
        """The lines below the table, one per erratum."""
        return tuple(
            f"{self(name)} see python -m reproductions errata {name}: {find_erratum(name).title}" for name in self.names
        )
