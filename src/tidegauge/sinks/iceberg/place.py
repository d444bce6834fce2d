"""Where a table of Iceberg is: its name in a catalog, and its folder in a warehouse.

Invariant: a name is of letters, digits, `_` and `-`, so it is one part of a path and means nothing to SQL; a table's
folder is a function of the warehouse and the name alone, so tasks know it without a catalog.

>>> name = IcebergName.parse("shop.orders")
>>> name.parts, folder_of("/lake", name), uri_of("/lake/shop/orders")
(('shop', 'orders'), '/lake/shop/orders', 'file:///lake/shop/orders')
>>> IcebergName.parse("shop.or'ders")
Traceback (most recent call last):
tidegauge.errors.flow.InvalidArgument: TG-0105: IcebergSink(table) cannot be "shop.or'ders"
...
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any, Final

from tidegauge.errors.flow import InvalidArgument
from tidegauge.objects.address import is_address
from tidegauge.sinks.location import location

__all__ = ["IcebergName", "folder_of", "same_place", "uri_of", "warehouse_at"]

_PART: Final = re.compile(r"\w[\w-]{0,126}")
_IN_URIS: Final = frozenset("#?%\\")
"""Readers take a location for a URI, each in its own way: a folder whose name has these is another one to some."""


@dataclass(frozen=True, slots=True)
class IcebergName:
    """The name of a table: its namespace, of one level or several, and its own name."""

    parts: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join(self.parts)

    @property
    def namespace(self) -> tuple[str, ...]:
        """The levels of the namespace."""
        return self.parts[:-1]

    @staticmethod
    def parse(text: Any) -> IcebergName:
        """Return the table that `namespace.name` is. Raises `InvalidArgument`."""
        parts = tuple(text.split(".")) if isinstance(text, str) else ()
        if len(parts) < 2 or not all(_PART.fullmatch(part) for part in parts):
            expected = "'namespace.table', each part of letters, digits, _ and -, and of 127 characters at most"
            raise InvalidArgument(parameter="IcebergSink(table)", value=text, expected=expected)
        return IcebergName(parts)


def warehouse_at(given: Any) -> str:
    """Return a warehouse in its one form. Raises `InvalidArgument`, and as `location`."""
    found = location(given, sink="IcebergSink")
    if bad := sorted(_IN_URIS.intersection(found)):
        expected = f"a folder without {bad[0]!r} in its path: readers of Iceberg take it for a URI"
        raise InvalidArgument(parameter="IcebergSink(warehouse)", value=found, expected=expected)
    return found


def folder_of(warehouse: str, name: IcebergName) -> str:
    """Return the folder of a table, as catalogs choose it that are not told another one."""
    return "/".join((warehouse.rstrip("/"), *name.parts))


def uri_of(folder: str) -> str:
    """Return a folder as a catalog is told of it."""
    return folder if is_address(folder) else f"file://{folder}"


def same_place(location: str, folder: str) -> bool:
    """Whether the location of a table is a folder; links in its path are followed.

    >>> same_place("file:/lake/shop/orders/", "/lake/shop/orders"), same_place("s3a://lake/x", "s3://lake/x")
    (True, True)
    """
    if is_address(folder):
        return location.rstrip("/").replace("s3a://", "s3://", 1) == folder
    path = re.sub(r"^file:(//)?(?=/)", "", location)
    return os.path.realpath(path) == os.path.realpath(folder)
