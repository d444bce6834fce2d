"""What epochs changed in an output: rows that came, and rows that went, consolidated within each epoch.

*Definition.* Let `T(e)` be the bag of an output's rows as of epoch `e`, without `_epoch`, and `T(-1)` empty. The
change of epoch `e` is `T(e) - T(e-1)`, a bag whose rows may count negatively: `_diff` is how often. Where rows
are only ever added, it is the rows that say `_epoch = e`. In a table by key a row stays unchanged, with its
`_epoch`, until its key is changed; so the difference of the two tables is that of the files that only one of them
has, where rows that merely moved cancel out.

Invariants. `T(s)` and the changes after `s` up to `e` add up to `T(e)`. Within an epoch no two rows of a change are
alike, and none has `_diff = 0`. Epochs come in order.

A table by key that gathers epochs (`commit_every`), or whose versions were partly cleared away, cannot be told at
each of its epochs. The changes of those that cannot are those of the next one that can.

>>> rows = pa.table({"_epoch": [0, 0, 0], "_diff": [1, 1, -1], "id": [1, 1, 2]})
>>> consolidated(rows).to_pylist()
[{'_epoch': 0, '_diff': 2, 'id': 1}, {'_epoch': 0, '_diff': -1, 'id': 2}]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute
import pyarrow.types as pt

from tidegauge.errors.readers import ChangesUnknown
from tidegauge.errors.sinks import EpochReplaced
from tidegauge.flow.spec import FlowSpec
from tidegauge.looking.view import View, reading, viewed
from tidegauge.remap.store import Loaded, Store
from tidegauge.sinks.columns import EPOCH
from tidegauge.sinks.protocol import Applying

__all__ = ["DIFF", "Difference", "changes", "codes", "consolidated", "counted", "differences", "state"]

DIFF: Final = "_diff"

pc: Final[Any] = pyarrow.compute


def state(flow: FlowSpec, output: str, epoch: int, *, store: Store, loaded: Loaded) -> pa.Table:
    """Return all rows of an output as of an epoch, as one change of that epoch.

    Raises what `read_arrow` raises.
    """
    view = viewed(flow, output, epoch, store=store, loaded=loaded)
    with reading(output):
        rows = _rows(view, pc.field(EPOCH) <= epoch)
    return consolidated(counted(rows, epoch, 1))


def changes(flow: FlowSpec, output: str, lower: int, upper: int, *, store: Store, loaded: Loaded) -> pa.Table:
    """Return what the epochs `[lower, upper)`, which are published, changed in an output.

    Raises `ChangesUnknown`, and what `read_arrow` raises.
    """
    sink = flow.output(output).sink
    if not (isinstance(sink, Applying) and sink.applies):
        view = viewed(flow, output, upper - 1, store=store, loaded=loaded, since=lower)
        with reading(output):
            rows = _rows(view, (pc.field(EPOCH) >= lower) & (pc.field(EPOCH) < upper))
        return consolidated(counted(rows, None, 1))
    found = []
    for one in differences(flow, output, lower, upper, store=store, loaded=loaded):
        with reading(output):
            found.append(one.rows())
    return pa.concat_tables(found, promote_options="default")


@dataclass(frozen=True, slots=True)
class Difference:
    """What an epoch changed in a table by key: the files that only it has, and those that only the table before it
    has; None where there was nothing before."""

    epoch: int
    come: View
    gone: View | None = None

    def rows(self) -> pa.Table:
        """Return it as a change of its epoch."""
        parts = [counted(_rows(self.come, pc.field(EPOCH) <= self.come.epoch), None, 1)]
        if self.gone is not None:
            parts.append(counted(_rows(self.gone, pc.field(EPOCH) <= self.gone.epoch), None, -1))
        both = consolidated(pa.concat_tables(parts, promote_options="default"))
        return consolidated(both.set_column(0, EPOCH, pa.array([self.epoch] * both.num_rows, pa.int64())))


def differences(
    flow: FlowSpec, output: str, lower: int, upper: int, *, store: Store, loaded: Loaded
) -> Iterator[Difference]:
    """Yield what the epochs `[lower, upper)`, which are published, changed in a table by key, without its rows.

    Raises `ChangesUnknown`, and what `read_arrow` raises.
    """
    before = _view_before(flow, output, lower, store=store, loaded=loaded)
    for epoch in range(lower, upper):
        try:
            after = viewed(flow, output, epoch, store=store, loaded=loaded)
        except EpochReplaced as gone:
            if epoch < upper - 1:
                continue
            raise ChangesUnknown(output=output, lower=lower, upper=upper, detail=gone.summary) from gone
        yield (
            Difference(epoch, after)
            if before is None
            else Difference(epoch, _without(after, before), _without(before, after))
        )
        before = after


def _view_before(flow: FlowSpec, output: str, lower: int, *, store: Store, loaded: Loaded) -> View | None:
    """Return the view that changes from `lower` on are told by, None for that of nothing."""
    if not lower:
        return None
    try:
        return viewed(flow, output, lower - 1, store=store, loaded=loaded)
    except EpochReplaced as gone:
        raise ChangesUnknown(output=output, lower=lower, upper=lower, detail=gone.summary) from gone


def _without(view: View, other: View) -> View:
    """Return the files of a view that another one lacks, or has with other rows."""
    known = set(other.pieces())
    kept = [at for at, piece in enumerate(view.pieces()) if piece not in known]
    return view.only(kept)


def _rows(view: View, condition: Any) -> pa.Table:
    return view.rows(condition).to_table()


def counted(rows: pa.Table, epoch: int | None, diff: int) -> pa.Table:
    """Return rows with `_epoch` first, their own where none is given, then `_diff`, then their other columns."""
    when = rows.column(EPOCH) if epoch is None else pa.array([epoch] * rows.num_rows, pa.int64())
    others = rows.drop_columns([EPOCH])
    return pa.table(
        [when, pa.array([diff] * rows.num_rows, pa.int64()), *others.columns],
        names=[EPOCH, DIFF, *others.column_names],
    )


def consolidated(rows: pa.Table) -> pa.Table:
    """Return a change with each row once in each epoch, in the order of epochs; rows that count nothing are gone."""
    if not rows.num_rows:
        return rows
    groups, count = codes(rows, [name for name in rows.column_names if name != DIFF])
    sums = np.zeros(count, np.int64)
    np.add.at(sums, groups, rows.column(DIFF).to_numpy())
    first = np.full(count, rows.num_rows, np.int64)
    np.minimum.at(first, groups, np.arange(rows.num_rows))
    kept = np.flatnonzero(sums)
    epochs = rows.column(EPOCH).to_numpy()[first[kept]]
    kept = kept[np.lexsort((first[kept], epochs))]
    found = rows.take(pa.array(first[kept]))
    return found.set_column(rows.column_names.index(DIFF), DIFF, pa.array(sums[kept], pa.int64()))


def codes(rows: pa.Table, columns: Sequence[str]) -> tuple[npt.NDArray[np.int64], int]:
    """Return a number for each row, the same for those that are alike in these columns, and how many there are.

    Nulls are alike, and so are NaNs; 0.0 and -0.0 are not.
    """
    found = np.zeros(rows.num_rows, np.int64)
    count = 1
    for name in columns:
        found = found * (each := _encoded(rows.column(name)))[1] + each[0]
        known, found = np.unique(found, return_inverse=True)
        count = len(known)
    return found.astype(np.int64, copy=False), count


def _encoded(column: pa.ChunkedArray[Any]) -> tuple[npt.NDArray[np.int64], int]:
    """Return a number for each value of a column, and a bound of them."""
    kind = column.type
    if pt.is_floating(kind):
        bits = column.combine_chunks().fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64)
        bits = np.where(np.isnan(bits), np.nan, bits).view(np.int64)
        column = pa.chunked_array([pa.array(bits, mask=np.asarray(column.is_null()))])
    elif pt.is_nested(kind):
        column = pa.chunked_array(
            [pa.array([None if value is None else repr(value) for value in column.to_pylist()])]
        )
    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    numbers = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers, max(1, len(encoded.dictionary))
