"""The known files up to a manifest, kept in one file, so that a new run need not read every manifest.

    _known    the keys and versions of entries, and the manifest up to which that is

The run that lists writes it now and then. It is no part of the log: without it, with a damaged one, or with one of
another log, all manifests are read.

Invariant: it recalls the files of the manifests up to that one, of a log whose manifest there has one digest
with the one that was remembered.

>>> import tempfile
>>> from pathlib import Path
>>> from tidegauge.objects.listing import Listed
>>> from tidegauge.sources.listings.entries import digests, table_of
>>> with tempfile.TemporaryDirectory() as root:
...     log = PollLog(Path(root), by_rows=True)
...     rows = table_of([Listed("/in/a", 3, 1, ""), Listed("/in/b", 3, 1, "")])
...     made, _ = log.publish(0, before="", state="{}", rows=rows)
...     known = Known()
...     known.add(*digests(rows))
...     remember(log, known, made)
...     found = recalled(log, upto=2)
...     found is not None and (len(found[0]), found[1].poll), recalled(log, upto=1)
((2, 0), None)
"""

from __future__ import annotations

import io
import logging
from contextlib import suppress
from hashlib import blake2b
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tidegauge.errors.base import TidegaugeError
from tidegauge.sources.listings.entries import Known, digests
from tidegauge.sources.polls.log import PollLog, PollManifest
from tidegauge.sources.staging import replace_whole

__all__ = ["EVERY", "recalled", "remember"]

_log: Final = logging.getLogger(__name__)

EVERY: Final = 1000
"""How many manifests a new run reads at most, about."""

_FILE: Final = "_known"
_COLUMNS: Final = pa.schema([("key", pa.binary()), ("version", pa.binary())])


def remember(log: PollLog, known: Known, last: PollManifest) -> None:
    """Keep the known files up to the end of a manifest. A failure is logged, and no more."""
    keys, versions = known.sorted()
    table = pa.table([_column(keys), _column(versions)], schema=_COLUMNS)
    said = {"first": str(last.poll), "digest": last.digest, "of": _digest(keys, versions)}
    out = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(said), out)
    try:
        replace_whole(log.folder / _FILE, out.getvalue())
    except (OSError, TidegaugeError) as error:
        _log.warning("source %s: the known files were not kept for the next run: %s", log.source, error)


def recalled(log: PollLog, *, upto: int) -> tuple[Known, PollManifest] | None:
    """Return the files that were kept, and their last manifest; None where none fits the log up to a number."""
    with suppress(OSError, ValueError, KeyError, TypeError, pa.ArrowException):
        table = pq.read_table(io.BytesIO((log.folder / _FILE).read_bytes()))
        said = table.schema.metadata
        last = log.manifest(int(said[b"first"]))
        found = digests(table)
        same = said[b"digest"].decode() == last.digest and said[b"of"].decode() == _digest(*found)
        if same and log.after(last) <= upto:
            known = Known()
            known.add(*found)
            return known, last
    return None


def _digest(keys: Any, versions: Any) -> str:
    return blake2b(keys.tobytes() + versions.tobytes(), digest_size=16).hexdigest()


def _column(array: Any) -> Any:
    """Return an array of bytes as a column. The zeros that an element ends with are part of it."""
    size = array.dtype.itemsize
    ends = pa.array(range(0, (len(array) + 1) * size, size), pa.int32())
    return pa.Array.from_buffers(pa.binary(), len(array), [None, ends.buffers()[1], pa.py_buffer(array.tobytes())])
