"""Where a table in PostgreSQL is: its name.

Invariant: each part of a name is meant literally, and can be that of a table.

>>> TableName.parse("shop.orders")
TableName(schema='shop', name='orders')
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegauge.errors.flow import InvalidArgument
from tidegauge.sinks.postgres.types import LONGEST_NAME

__all__ = ["TableName"]


@dataclass(frozen=True, slots=True)
class TableName:
    """The name of a table, each part literally: upper case stays."""

    schema: str
    name: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"

    @staticmethod
    def parse(text: str) -> TableName:
        """Return the table that `name` or `schema.name` is. Raises `InvalidArgument`."""
        parts = text.split(".") if isinstance(text, str) else []
        named = ["public", *parts] if len(parts) == 1 else parts
        if len(named) != 2 or not all(
            part.strip() and "\0" not in part and len(part.encode()) <= LONGEST_NAME for part in named
        ):
            expected = f"'table' or 'schema.table', each of at most {LONGEST_NAME} bytes"
            raise InvalidArgument(parameter="PostgresSink(table)", value=text, expected=expected)
        schema, name = named
        if schema == "tidegauge" or schema.startswith("pg_"):
            raise InvalidArgument(parameter="PostgresSink(table)", value=text, expected="a table in another schema")
        return TableName(schema, name)
