"""What a source's folder knows of the place where its stream began, beside the files of the first rows.

    domain             whose transactions change the tables
    table STREAM       the columns of a table by their places, where the log does not name them
    ended STREAM       the transaction that made another table of it, or from which on it was gone, and why

Invariant: a note of a transaction counts for a stream that begins behind it alone. One that begins before has
the transaction itself.

>>> record = LogBeginning("3-57-9", "server 57", 0, point=10, shapes={"domain": "3"})
>>> ended = with_ended(record, {"orders": ending(("3", 11, 0), ENDED, detail="it is gone")})
>>> unknown(ended, ["orders"], {"3": 12})
{'orders': 'it is gone'}
>>> unknown(ended, ["orders"], {"3": 11})["orders"] == _LOST
True
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

import pyarrow as pa

from tidegauge.sources.database.folder import LogBeginning
from tidegauge.sources.mysql.chunks import ENDED, RowsChunk, batch_of, ending, of_first_rows
from tidegauge.sources.mysql.shapes import LoggedTable

__all__ = ["first_rows", "known_tables", "unknown", "with_ended"]

_TABLE: Final = "table "
_ENDED: Final = "ended "
_LOST: Final = "its columns are not known: what the source's folder knew of the first rows is gone"


def known_tables(record: LogBeginning | None) -> Mapping[str, LoggedTable]:
    """Return the columns of each stream's table by their places, as they were with the first rows."""
    return {name: LoggedTable.decoded(text) for name, text in _noted(record, _TABLE)}


def unknown(record: LogBeginning | None, streams: Iterable[str], start: Mapping[str, int]) -> Mapping[str, str]:
    """Return the streams whose columns by place are not known at a start, with why."""
    known = known_tables(record)
    found = {stream: _LOST for stream in streams if stream not in known}
    for stream, text in _noted(record, _ENDED):
        said = json.loads(text)
        if start.get(said["domain"], 0) > said["sequence"]:
            found[stream] = said["detail"]
    return found


def with_ended(record: LogBeginning, ended: Mapping[str, RowsChunk]) -> LogBeginning:
    """Return a beginning that knows of the records that end streams, by stream. The first one of each counts."""
    shapes = {
        f"{_ENDED}{stream}": json.dumps(
            {"domain": chunk.domain, "sequence": chunk.sequence, "detail": json.loads(chunk.data)["detail"]}
        )
        for stream, chunk in ended.items()
    }
    return replace(record, shapes={**shapes, **record.shapes})


def first_rows(record: LogBeginning, streams: Collection[str]) -> list[tuple[str, pa.RecordBatch]]:
    """Return the pieces of the first rows of streams, at their last transaction, and the ends of tables gone by
    then."""
    place = record.shapes["domain"], record.point - 1, record.at
    found = []
    for stream, pieces in record.pieces.items():
        found += [(stream, batch_of([of_first_rows(place, piece)])) for piece in pieces]
    for stream, text in _noted(record, _ENDED):
        said = json.loads(text)
        if (said["domain"], said["sequence"]) == place[:2]:
            found.append((stream, batch_of([ending(place, ENDED, detail=said["detail"])])))
    return [one for one in found if one[0] in streams]


def _noted(record: LogBeginning | None, kind: str) -> list[tuple[str, str]]:
    shapes = {} if record is None else record.shapes
    return [(name.removeprefix(kind), text) for name, text in shapes.items() if name.startswith(kind)]
