"""Reading pinned splits without staging anything: rows with their epochs, or an error.

Invariant. All rows of the splits come, each once, or the error that says why not: never fewer in silence. After the
last one upstream is asked whether it is still the bound one.

>>> from tidegauge.sources.generator import GeneratorSource
>>> from tidegauge.remap.binding import Slice
>>> from tidegauge.job.functions import with_epoch
>>> source = GeneratorSource(3, columns="id long")
>>> bound = Bound(schema=source.schema)
>>> splits = tuple(source.plan([Slice("n", 4, "0", 0, 3)], bound))
>>> read = SourceRead("n", source, source.schema, splits, False)
>>> rows = list(scanned(read, bound, with_epoch(source.schema)))
>>> sum(batch.num_rows for batch in rows), rows[0].column("_epoch").to_pylist()
(3, [4, 4, 4])
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tidegauge.job.decoding import decoded
from tidegauge.job.functions import conform
from tidegauge.job.perform import unconfirmed
from tidegauge.job.plan import SourceRead
from tidegauge.job.report import Report
from tidegauge.reclock.columns import stamp
from tidegauge.remap.binding import Bound

__all__ = ["scanned"]


def scanned(read: SourceRead, bound: Bound, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a read's splits, with these columns, in the order of the splits.

    Raises what a run says of the source.
    """
    report = Report()
    for channel, epoch, rows in decoded(read, report):
        if channel == "rows" and rows.num_rows:
            yield conform(stamp(rows, epoch), columns)
    for failure in report.failures:
        raise failure.error
    if read.splits and (changed := unconfirmed(read, bound, read.splits[0].epoch)) is not None:
        raise changed.error
