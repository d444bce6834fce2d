"""The columns of a source's rows: those of the key, then those of the value, then what Kafka knows of a message.

What a format does not declare is inferred from the first messages, once, and kept with the first binding. Kept are
columns; whose they are follows from the part that is declared, so of key and value one has to be. What is declared is
held against what is bound, since a part that was edited would give the other one's columns to it. (A key that is
declared anew to have the value's first column, too, by name and type, is the one edit that does not show.)

Invariant: a column of a row is the key's, the value's or Kafka's, the same in every run, and no two have one name.

>>> key, value = pa.schema([("k", pa.int64())]), pa.schema([("n", pa.int64())])
>>> joined(key, value, metadata=False, topics="orders").names
['k', 'n']
>>> keys_of(joined(key, value, metadata=True, topics="orders"), None, value, metadata=True, source="orders").names
['k']
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import pyarrow as pa

from tidegauge.errors.kafka import KeyAndValueClash
from tidegauge.errors.store import SchemaChanged
from tidegauge.remap.store.columns import differences
from tidegauge.sources.metadata import MESSAGE, with_metadata, without_metadata

__all__ = ["joined", "keys_of"]

_KNOWN: Final = 1024
"""Of how many sources it is remembered which columns are the key's: what is bound of one does not change."""


def joined(key: pa.Schema, value: pa.Schema, *, metadata: bool, topics: object) -> pa.Schema:
    """Return the columns of rows. Raises `KeyAndValueClash`, `ReservedColumn`."""
    taken = {name.lower() for name in key.names}
    if both := [name for name in value.names if name.lower() in taken]:
        raise KeyAndValueClash(topics=str(topics), columns=both)
    where = f"the source of {topics}"
    return with_metadata(pa.schema([*key, *value]), metadata=metadata, where=where, columns=MESSAGE)


@lru_cache(maxsize=_KNOWN)
def keys_of(
    bound: pa.Schema, key: pa.Schema | None, value: pa.Schema | None, *, metadata: bool, source: str
) -> pa.Schema:
    """Return the key's columns among those that are bound, given those that are declared; the key's come first.

    Raises `SchemaChanged` when what is declared is not what is bound.
    """
    facts = pa.schema(list(bound)[-len(MESSAGE) :]).equals(MESSAGE)
    if facts != metadata:
        change = f"metadata: {facts} -> {metadata}"
        raise SchemaChanged(source=source, differences=[change])
    columns = list(without_metadata(bound, metadata=metadata, columns=MESSAGE))
    count = len(key) if key is not None else max(0, len(columns) - len(value or ()))
    mine, others = pa.schema(columns[:count]), pa.schema(columns[count:])
    for was, declared in ((mine, key), (others, value)):
        if declared is not None and (changed := differences(was, declared)):
            raise SchemaChanged(source=source, differences=changed)
    return mine
