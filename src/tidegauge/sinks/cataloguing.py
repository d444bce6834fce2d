"""Names of tables in a catalog: a table is where its path says, and a name makes it easy to find.

Invariant: a name never decides where rows go, nor whether they are committed. It is made for a table that is there,
is never moved from one table to another, and trouble with it harms no row.

>>> check_name("DeltaSink", "lake.shop.orders", "/lake/orders")
>>> quoted("shop.2026 orders")
'`shop`.`2026 orders`'
>>> same_place("file:/lake/my%20orders", "/lake/my orders/"), same_place("s3a://lake/orders", "s3://lake/orders")
(True, True)
>>> same_place("s3://lake/orders", "s3://other/orders")
False
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any, Final, Protocol, runtime_checkable
from urllib.parse import unquote

from tidegauge.errors.flow import InvalidArgument

__all__ = ["Catalog", "CatalogEntry", "Cataloguing", "Named", "check_name", "quoted", "same_place"]

_PARTS: Final = 3
_PART: Final = re.compile(r"[^`.\x00-\x1f]{1,255}")


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """The name of an output's table, and where that is."""

    output: str
    name: str
    location: str


class Catalog(Protocol):
    """What knows tables by name."""

    def take_in(self, entry: CatalogEntry) -> None:
        """Make a Delta table known by its name; nothing to do if it is. Raises `CatalogNameTaken`, `CatalogTrouble`.

        Called beside the driver's thread.
        """
        ...


@runtime_checkable
class Cataloguing(Protocol):
    """An `Engine` that has a catalog."""

    @property
    def catalog(self) -> Catalog:
        """The catalog."""
        ...


@runtime_checkable
class Named(Protocol):
    """A `Sink` whose table may have a name in a catalog."""

    @property
    def table(self) -> str | None:
        """The name, None for none."""
        ...

    @property
    def place(self) -> str:
        """Where the table is, for other programs."""
        ...


def check_name(sink: str, given: Any, location: str) -> None:
    """Raise `InvalidArgument` unless it is a name, of one, two or three parts with dots, for a table in this place.

    Where a statement defines a table, its place is within quotes, and how they are escaped is a session's setting.
    """
    if "'" in location or "\\" in location:
        expected = "no quote and no backslash in the path of a table that has a name"
        raise InvalidArgument(parameter=f"{sink}(path)", value=location, expected=expected)
    parts = given.split(".") if isinstance(given, str) else []
    if not 1 <= len(parts) <= _PARTS or not all(_PART.fullmatch(part) for part in parts):
        expected = "a name such as 'orders', 'shop.orders' or 'lake.shop.orders'"
        raise InvalidArgument(parameter=f"{sink}(table)", value=given, expected=expected)


def quoted(name: str) -> str:
    """Return a name as SQL has it."""
    return ".".join(f"`{part}`" for part in name.split("."))


def same_place(one: str, other: str) -> bool:
    """Whether two locations are one, as far as their texts and symbolic links tell."""
    return _normal(one) == _normal(other)


def _normal(location: str) -> str:
    found = re.sub(r"^s3[an]://", "s3://", location).rstrip("/")
    path = "/" + unquote(found.removeprefix("file:").lstrip("/")) if found.startswith("file:/") else found
    return os.path.realpath(path) if path.startswith("/") else path
