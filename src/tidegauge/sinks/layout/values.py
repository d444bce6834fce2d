"""The values of partition columns as text: in a table's log, and in the names of folders.

    text       as Delta's protocol has it: 7, -1.50, true, 2026-11-20, DE; None for a null
    folder     country=DE/at_day=2026-11-20, other signs as the bytes of their UTF-8: country=a%2Fb
    null       country=__HIVE_DEFAULT_PARTITION__, as Hive and all others have it

Folders hold letters, digits and `_.-` of ASCII besides `%` and `=`. So no value leads out of a table's folder, none
is a pattern for a reader that takes paths for patterns, and all of them are names on every file system and in every
object store.

Invariant: `parsed(text_of(v), kind) == v` and `unfolded(folder(n, t)) == (n, t)`; a text is equal to another one only
if the values are.

>>> folder("country", "a/b"), folder("country", None)
('country=a%2Fb', 'country=__HIVE_DEFAULT_PARTITION__')
>>> text_of(pa.scalar(True)), parsed("2026-11-20", pa.date32()).as_py().day
('true', 20)
"""

from __future__ import annotations

from string import ascii_letters, digits
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.types as pt

__all__ = [
    "NULL",
    "PartitionValues",
    "constants",
    "folder",
    "folders",
    "parsed",
    "problem_of",
    "text_of",
    "texts_of",
    "unfolded",
]

PartitionValues: TypeAlias = tuple[tuple[str, str | None], ...]
"""Of each partition column its name and its value as text, in the table's order."""

NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_PLAIN: Final = frozenset(f"{ascii_letters}{digits}_.-")
_LONGEST: Final = 255
"""Bytes of a name on a file system."""
_YEARS: Final = ("0001-01-01", "9999-12-31")


def texts_of(values: Any) -> list[str | None]:
    """Return an array of values of a partition column as texts."""
    kind = values.type
    if pt.is_boolean(kind):
        return [None if value is None else "true" if value else "false" for value in values.to_pylist()]
    if pt.is_decimal(kind):
        return [None if value is None else f"{value:f}" for value in values.to_pylist()]
    found: list[str | None] = values.cast(pa.string()).to_pylist()
    return found


def text_of(value: pa.Scalar[Any]) -> str | None:
    """Return one value as text."""
    return texts_of(pa.array([value.as_py()], value.type))[0]


def parsed(text: str | None, kind: Any) -> pa.Scalar[Any]:
    """Return the value of a text, as of a type."""
    if text is None or (not text and not pt.is_string(kind)):
        return pa.scalar(None, kind)
    return pa.scalar(text, pa.string()).cast(kind)


def constants(values: PartitionValues, columns: pa.Schema) -> dict[str, pa.Scalar[Any]]:
    """Return the values of a partition as those of a table's columns."""
    return {name: parsed(text, columns.field(name).type) for name, text in values}


def problem_of(name: str, text: str | None, kind: Any) -> str:
    """Return why a value cannot be that of a partition for all readers, "" where it can."""
    if text is None:
        return ""
    if not text:
        return "an empty text, which Delta's protocol takes for a null"
    if text == NULL:
        return "the text by which readers of folders know a null"
    if pt.is_date(kind) and not (len(text) == len(_YEARS[0]) and _YEARS[0] <= text <= _YEARS[1]):
        return "a date outside of the years 1 to 9999"
    if len(folder(name, text).encode()) > _LONGEST:
        return f"too long for the name of a folder, which has {_LONGEST} bytes"
    return ""


def folder(name: str, text: str | None, *, letters: bool = False) -> str:
    """Return the name of the folder for a value. letters: see `folders`."""
    return f"{_quoted(name, letters)}={NULL if text is None else _quoted(text, letters)}"


def folders(values: PartitionValues, *, letters: bool = False) -> str:
    """Return the path of a partition, relative to its table; "" without partition columns.

    letters: whether letters of other alphabets stay. Spark reads their bytes, in names of folders, as a letter each;
    and where a log names files, it takes two ways to write one letter for two files, and VACUUM removes one of them.
    """
    return "/".join(folder(name, text, letters=letters) for name, text in values)


def unfolded(name: str) -> tuple[str, str | None]:
    """Return what the name of a folder says."""
    column, _, text = name.partition("=")
    return unquote(column), None if text == NULL else unquote(text)


def _quoted(text: str, letters: bool) -> str:  # noqa: FBT001 - of this module
    kept = (one in _PLAIN or (letters and not one.isascii() and one.isprintable()) for one in text)
    return "".join(one if keep else _bytes(one) for one, keep in zip(text, kept, strict=True))


def _bytes(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode())
