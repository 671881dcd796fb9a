"""[facts]: what clients know of themselves, such as age, battery or job, from a file or column by column."""

from __future__ import annotations

from typing import Annotated, Self, TypeAlias

from pydantic import BeforeValidator, Field, model_validator

from fedmerit.config.sections import Section
from fedmerit.errors import ConfigError


def _worded(value: object) -> object:
    """TOML's true as a CSV has it, in letters."""
    return str(value).lower() if isinstance(value, bool) else value


Number: TypeAlias = Annotated[float, Field(ge=0, strict=True, allow_inf_nan=False)]
Value: TypeAlias = Annotated[Number | str, BeforeValidator(_worded)]


class FactsConfig(Section):
    """[facts]: facts of each client's own, which criteria `fact:NAME` read."""

    file: str = Field("", description="a CSV file with a line per client; its other columns are the facts")
    client: str = Field("", description="its column that names the client; default: client, id, name, or the first")
    columns: dict[str, tuple[Value, ...]] = Field(
        {}, description="facts column by column instead: a number, a word or true per client, in their order"
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if bool(self.file) == bool(self.columns):
            raise ConfigError(
                "[facts] takes file = 'clients.csv', or [facts.columns] with age = [34, 51] and the like; got "
                + ("both" if self.file else "neither")
            )
        if self.client and not self.file:
            raise ConfigError("facts.client names a column of facts.file; leave it out, or give the file")
        return self
