"""Columns that messages tell: first all of them, and later further ones of values; those of keys stay.

Invariant: the key's columns stay the first ones and Kafka's own the last ones, and no other gets the name of one.

>>> from tidegauge.sources.formats.json import Json
>>> key, value = pa.schema([("k", pa.int64())]), pa.schema([("n", pa.int64())])
>>> bulk = Bulk(runs=[("t-0", 1)], offsets=[0], values=[b'{"n": 1, "K": 2, "note": "text"}'], keys=[None], times=[-1])
>>> further([bulk], Json(), key, value, metadata=False).names
['k', 'n', 'note']
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from tidegauge.evolution import joined
from tidegauge.operations import OP
from tidegauge.reclock.columns import EPOCH
from tidegauge.sources.formats.further import FurtherMessages
from tidegauge.sources.formats.messages import MessageFormat
from tidegauge.sources.kafka.reading import Bulk
from tidegauge.sources.metadata import MESSAGE

__all__ = ["further", "tells", "told"]


def tells(format: MessageFormat) -> bool:
    """Whether a format tells of further columns."""
    return format.schema is None and isinstance(format, FurtherMessages)


def further(
    bulks: Iterable[Bulk], format: MessageFormat, keys: pa.Schema, values: pa.Schema, *, metadata: bool
) -> pa.Schema:
    """Return the columns of rows, with those that messages have besides. Raises as the format does."""
    facts = MESSAGE if metadata else pa.schema([])
    found = values
    if isinstance(format, FurtherMessages):
        for bulk in bulks:
            found = format.further_messages(bulk.values, schema=found)
    known, taken = pa.schema([*keys, *values]), {OP, EPOCH.name, *facts.names}
    return pa.schema([*joined(known, pa.schema([f for f in found if f.name not in keys.names]), taken=taken), *facts])


def told(
    declared: pa.Schema | None, format: MessageFormat | None, sample: Sequence[bytes | None]
) -> pa.Schema | None:
    """Return the columns that are declared, or those that a sample tells."""
    return declared if declared is not None or format is None or not sample else format.infer_messages(sample)
