"""What a source of a database is declared with: its tables, its folder, and the columns of its streams.

Invariant: the columns of a table are those that it had when it was declared first; later ones are left out.

>>> import tempfile
>>> from tidegauge.sources.database.folder import SourceFolder
>>> now = {"shop.orders": pa.schema([("id", pa.int64())])}
>>> with tempfile.TemporaryDirectory() as path:
...     folder = SourceFolder(path)
...     first = first_declared(folder, ["shop.orders"], lambda: now)
...     again = first_declared(folder, ["shop.orders"], lambda: {})
>>> first == again == now, stream_columns(now["shop.orders"], metadata=True).names
(True, ['id', '_op', '_sequence', '_partition', '_offset', '_timestamp'])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from tidegauge.disk import local_path
from tidegauge.errors.flow import InvalidArgument
from tidegauge.operations import OP
from tidegauge.sources.database.folder import SourceFolder
from tidegauge.sources.database.sequence import SEQUENCE, SEQUENCE_TYPE
from tidegauge.sources.metadata import PLACE, TIMESTAMP, with_metadata

__all__ = ["checked_folder", "checked_tables", "first_declared", "folder_of", "stream_columns"]

_METADATA: Final = pa.schema([*PLACE, ("_timestamp", TIMESTAMP)])


def checked_tables(given: Any, name: Callable[[str], tuple[str, str]], *, source: str) -> tuple[str, ...]:
    """Return the tables that a source is given. name: returns the whole name of one, and raises for none.

    Raises `InvalidArgument`.
    """
    parameter = f"{source}(tables)"
    if isinstance(given, str) or not isinstance(given, Sequence) or not given:
        raise InvalidArgument(parameter=parameter, value=given, expected="a list of tables")
    if len({name(one) for one in given}) < len(given):
        raise InvalidArgument(parameter=parameter, value=list(given), expected="each table once")
    return tuple(given)


def checked_folder(given: str, *, source: str) -> str:
    """Return a folder as a path. Raises `InvalidArgument` for one that is on no disk."""

    def elsewhere(scheme: str) -> Exception:
        parameter = f"{source}(folder)"
        return InvalidArgument(parameter=parameter, value=f"{scheme}://...", expected="a local folder")

    return local_path(given, parameter="folder", elsewhere=elsewhere)


def folder_of(folder: str, owner: tuple[str, str] | None) -> SourceFolder:
    """Return the folder in a folder that is the one of a flow's source."""
    return SourceFolder(str(Path(folder, *(owner or ("", "")))))


def first_declared(
    folder: SourceFolder, names: Sequence[str], look: Callable[[], Mapping[str, pa.Schema]]
) -> Mapping[str, pa.Schema]:
    """Return the columns of tables as they were first declared; look them up and keep them where they are not known.

    names: of the tables, in full. Raises what `look` does, and `FolderDamaged`.
    """
    known = folder.columns()
    if known is not None and all(name in known for name in names):
        return known
    schemas = {**look(), **({} if known is None else known)}  # what was declared first stays
    folder.keep_columns(schemas)
    return schemas


def stream_columns(columns: pa.Schema, *, metadata: bool) -> pa.Schema:
    """Return the columns of a table's stream. Raises `ReservedColumn` for a table that has one of ours."""
    own = pa.schema([*columns, (OP, pa.string()), (SEQUENCE, SEQUENCE_TYPE)])
    return with_metadata(own, metadata=metadata, where="the table", columns=_METADATA)
