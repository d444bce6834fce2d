"""The items of a bytewax partition as rows: dicts, or what a function of the user's makes of each item.

An item may be an Arrow table or record batch, too, which is as many rows as it has.

Invariant: an item that is no row has the whole batch refused.

>>> columns = pa.schema([("n", pa.int64())])
>>> rows_of("it", "p", [{"n": 1}, pa.table({"n": [2, 3]})], columns, None).column("n").to_pylist()
[1, 2, 3]
>>> rows_of("it", "p", [1, 2], columns, lambda item: {"n": item} if item > 1 else None).to_pylist()
[{'n': 2}]
>>> rows_of("it", "p", ["a"], columns, None)
Traceback (most recent call last):
tidegauge.errors.bytewax.ItemUnfit: TG-0984: source 'it': an item of partition 'p' is no row: it is of type str, ...
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, Final

import pyarrow as pa

from tidegauge.errors.base import brief
from tidegauge.errors.bytewax import ItemUnfit
from tidegauge.sources.polls.rows import as_rows

__all__ = ["rows_of"]

_SHOWN: Final = 200


def rows_of(
    source: str, partition: str, items: Sequence[Any], columns: pa.Schema, row: Callable[[Any], Any] | None
) -> pa.Table:
    """Return the rows of items in these columns. Raises `ItemUnfit`, and `PollUnfit` where one does not fit them."""
    about = {"source": source, "partition": partition}
    if row is not None:
        try:
            items = [made for item in items if (made := row(item)) is not None]
        except Exception as error:
            raise ItemUnfit(**about, problem=f"row= raised {brief(error)[:_SHOWN]}") from error
    found = [columns.empty_table()]
    plain = set(map(type, items)) == {dict}
    for kind, some in [(dict, items)] if plain else groupby(items, type):
        if issubclass(kind, dict):
            found.append(as_rows(source, items if plain else list(some), columns, plain=plain))
        elif issubclass(kind, pa.Table | pa.RecordBatch):
            found += [as_rows(source, one, columns) for one in some]
        else:
            made = "row= returned it, and " if row is not None else ""
            raise ItemUnfit(**about, problem=f"{made}it is of type {kind.__name__}, and a dict is expected")
    return pa.concat_tables(found)
