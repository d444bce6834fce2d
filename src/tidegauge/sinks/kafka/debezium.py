"""The change of each key's row in an epoch, as Debezium writes it: the row before, and the row after.

Definition: of the rows of one key in one epoch, sorted by `order`, a `before` ahead of its operation, let *first* be
the first one and *last* the last operation.

    before   the row of first, if that is `before` or `delete`; else null, as the source did not tell it
    after    the row of last; null if that is `delete`
    op       d where after is null; c where first is `insert`; else u

Invariant: a key has at most one message in an epoch, and applying the messages in order gives the view of the
operations (`tidegauge.operations`). A key that came and went within the epoch has none. What lies between first and
last was never visible as of any epoch, so it is not told.

An order that leaves two operations of one key in doubt is refused, as for upserts: chance would decide which one
counts.

>>> rows = pa.table({"key": list("aab"), "value": ["{}", "[]", "{}"], "op": ["before", "update", "delete"]})
>>> rows = rows.append_column("order", pa.array([1, 1, 2]))
>>> paired(rows, ordered=True, topic="t", epoch=0).column("value").to_pylist()
[b'{"before":{},"after":[],"op":"u"}', b'{"before":{},"after":null,"op":"d"}']
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute

from tidegauge.errors.kafkasink import LastUndecided
from tidegauge.operations import BEFORE, DELETE, INSERT

__all__ = ["OPERATION", "ORDER", "PLACE", "paired"]

pc: Final[Any] = pyarrow.compute  # its functions are made at run time, which type checkers cannot see

OPERATION: Final = "op"
ORDER: Final = "order"
PLACE: Final = "place"
"""The partition that a row came from, where `order` counts within partitions."""

_SHOWN: Final = 100


def paired(rows: pa.Table, *, ordered: bool, topic: str, epoch: int) -> pa.Table:
    """Return the messages of the rows of one epoch. Raises `LastUndecided`.

    rows: messages whose `value` is the row in JSON, with `op` and, where `ordered`, `order`, perhaps with a `place`.
    The other columns of a message are those of its key's last operation. Takes memory for the epoch.
    """
    rows, acting = _sorted(rows, ordered=ordered)
    _check(rows.filter(pa.array(acting)), ordered=ordered, topic=topic, epoch=epoch)
    keys = rows.column("key")
    starts = np.append(True, pc.not_equal(keys.slice(1), keys.slice(0, max(len(keys) - 1, 0))).to_numpy())[
        : len(keys)
    ]
    firsts = np.flatnonzero(starts)
    lasts = np.maximum.reduceat(np.where(acting, np.arange(len(keys)), -1), firsts) if len(keys) else firsts
    firsts, lasts = firsts[lasts >= 0], lasts[lasts >= 0]
    first, last = rows.take(pa.array(firsts)), rows.take(pa.array(lasts))
    began, ended = first.column(OPERATION), last.column(OPERATION)
    told = pc.is_in(began, pa.array([BEFORE, DELETE]))
    before, after = _row(first, told), _row(last, pc.not_equal(ended, DELETE))
    new, gone = pc.equal(began, INSERT), pc.equal(ended, DELETE)
    op = pc.if_else(gone, _text("d"), pc.if_else(new, _text("c"), _text("u")))
    parts = (_text('{"before":'), before, _text(',"after":'), after, _text(',"op":"'), op, _text('"}'))
    value = pc.binary_join_element_wise(*parts, _text(""))
    place = rows.schema.get_field_index("value")
    messages = last.set_column(place, "value", value.cast(pa.large_binary()))
    return messages.filter(pc.invert(pc.and_(new, gone)))


def _sorted(rows: pa.Table, *, ordered: bool) -> tuple[pa.Table, Any]:
    """Return rows by key, order and whether they act, and for each whether it does."""
    acts = pc.not_equal(rows.column(OPERATION), BEFORE)
    by = {"key": rows.column("key"), "acts": acts.cast(pa.int8())}
    if ordered:
        order = rows.column(ORDER)
        by = {"key": by["key"], "valid": pc.is_valid(order).cast(pa.int8()), ORDER: order, "acts": by["acts"]}
    sorting = pc.sort_indices(pa.table(by), sort_keys=[(name, "ascending") for name in by])
    return rows.take(sorting), acts.take(sorting).to_numpy(zero_copy_only=False) if len(acts) else np.zeros(
        0, dtype=bool
    )


def _check(acting: pa.Table, *, ordered: bool, topic: str, epoch: int) -> None:
    """Raise `LastUndecided` where the order of two operations that follow each other is not known."""

    def pairs(name: str) -> tuple[Any, Any]:
        column = acting.column(name)
        return column.slice(0, acting.num_rows - 1), column.slice(1)

    if acting.num_rows < 2:
        return
    doubtful = pc.equal(*pairs("key"))
    if ordered:
        earlier, later = pairs(ORDER)
        behind = pc.or_(
            pc.fill_null(pc.less(earlier, later), fill_value=False), pc.and_(earlier.is_null(), later.is_valid())
        )
        if PLACE in acting.column_names:
            behind = pc.and_(behind, pc.fill_null(pc.equal(*pairs(PLACE)), fill_value=False))
        doubtful = pc.and_(doubtful, pc.invert(behind))
    found = np.flatnonzero(doubtful.to_numpy())
    if len(found):
        key = acting.column("key")[int(found[0])].as_py()
        raise LastUndecided(epoch=epoch, key=repr(key[:_SHOWN]), topic=topic)


def _row(rows: pa.Table, told: Any) -> Any:
    return pc.if_else(told, rows.column("value").cast(pa.large_string()), _text("null"))


def _text(text: str) -> Any:
    return pa.scalar(text, pa.large_string())
