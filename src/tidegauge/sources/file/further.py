"""Columns that the records of a split of files have beside those that are known.

Lines are gone through once, a file that is read whole tells by what it says of itself. It is opened and checked as
for reading (`reading`).

Invariant: columns that say where a row is from stay the last ones, and no other gets the name of one.
"""

from __future__ import annotations

import os

import pyarrow as pa

from tidegauge.errors.sources import ShortRead
from tidegauge.evolution import joined
from tidegauge.operations import OP
from tidegauge.reclock.columns import EPOCH
from tidegauge.sources.file.disk import DISK, Disk
from tidegauge.sources.file.reading import FileSplit, lines_of, naming, opened
from tidegauge.sources.formats.further import FurtherLines
from tidegauge.sources.formats.protocol import Format, as_line, as_whole
from tidegauge.sources.metadata import PLACE, without_metadata

__all__ = ["further", "tells"]


def tells(format: Format) -> bool:
    """Whether a format tells of further columns."""
    return format.schema is None and (isinstance(format, FurtherLines) or as_whole(format) is not None)


def further(split: FileSplit, columns: pa.Schema, *, format: Format, metadata: bool, disk: Disk = DISK) -> pa.Schema:
    """Return columns, and those that the records of a split have besides.

    Raises what `reading.batches` raises of a file.
    """
    facts = PLACE if metadata else pa.schema([])
    known = without_metadata(columns, metadata=metadata)
    with opened(split, disk) as (path, stream), naming(path):
        try:
            whole, line = as_whole(format), as_line(format)
            if whole is not None:
                found = whole.infer_whole(stream)
            elif line is not None and isinstance(format, FurtherLines):
                with lines_of(stream, split, line) as text:
                    found = format.further(
                        text.text, lower=text.lower, upper=text.upper, header=text.header, schema=known
                    )
            else:
                found = known
        except EOFError as error:
            size = stream.seek(0, os.SEEK_END)
            raise ShortRead(path=path, lower=split.lower, upper=split.upper, size=size) from error
    return pa.schema([*joined(known, found, taken={OP, EPOCH.name, *facts.names}), *facts])
