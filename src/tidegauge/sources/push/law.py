"""What must hold of everything that a subscription gives: pure checks, made before any of it is taken in.

Invariant. What passes goes on from the frontier reached, record by record within its range, and upstream still has
all that it had shown. Nothing is read from the log again once it is in the tables, so its `end` alone tells of a log
that was cut off under the same identity, as by restoring it from an older backup: that is a loss, whether records
are missing now or others will stand in their places (law 9).

>>> still_there("feed", Frontier({"p0": 5}), Frontier({"p0": 9}), Frontier({"p0": 3}))
Traceback (most recent call last):
tidegauge.errors.running.UpstreamRecreated: TG-0554: source 'feed' now points at another upstream: ...
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from tidegauge.errors.push import PushedEndTakenBack, SubscriptionBroken
from tidegauge.errors.reclock import UnplacedRecords
from tidegauge.errors.running import UpstreamRecreated
from tidegauge.reclock.places import ArrowRows
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.push.protocol import Received

__all__ = ["AT_ONCE", "lawful", "still_there"]

AT_ONCE: Final = 1 << 16
"""Records that one call may give. There is room for four times as many between the reader and their epochs."""


def still_there(source: str, bound: Frontier, shown: Frontier, end: Frontier) -> None:
    """Raise where upstream ends before the bound frontier, or before the end that it had shown to this run.

    Raises `UpstreamRecreated`, `PushedEndTakenBack`.
    """
    if behind := _behind(end, bound):
        known = "; ".join(f"{partition} with records to {was}" for partition, (_, was) in behind[:5])
        found = "; ".join(f"{partition} with records to {now}" for partition, (now, _) in behind[:5])
        raise UpstreamRecreated(source=source, known=known, found=found)
    if behind := _behind(end, shown):
        partition, (now, was) = behind[0]
        raise PushedEndTakenBack(source=source, partition=partition, seen=was, end=now)


def _behind(end: Frontier, other: Frontier) -> list[tuple[str, tuple[int, int]]]:
    """Return the partitions that end before another frontier, each with both positions. A seal is no position."""
    if other.less_equal(end) and not end.sealed:
        return []
    return sorted((partition, (end[partition], n)) for partition, n in other.items() if end[partition] < n)


def lawful(
    source: str, streams: Mapping[str, pa.Schema], reached: Frontier, received: Received, *, raw: bool
) -> None:
    """Raise `SubscriptionBroken` for what must not be received at a frontier; see the law of the protocol.

    streams: the declared columns. raw: whether the batches have other columns, which are decoded later.

    >>> rows = pa.record_batch({"id": [1, 2], "_partition": ["p0", "p0"], "_offset": [4, 5]})
    >>> streams, received = {"": pa.schema([("id", pa.int64())])}, Received((("", rows),), Frontier({"p0": 6}))
    >>> lawful("orders", streams, Frontier({"p0": 4}), received, raw=False)
    >>> lawful("orders", streams, Frontier({"p0": 5}), received, raw=False)
    Traceback (most recent call last):
    tidegauge.errors.push.SubscriptionBroken: TG-0351: source 'orders' broke the rules of a subscription: ...
    """

    def broken(problem: str) -> SubscriptionBroken:
        return SubscriptionBroken(source=source, problem=problem)

    if not isinstance(received, Received) or not isinstance(received.frontier, Frontier):
        raise broken(f"it gave {type(received).__name__}, not Received with a Frontier")
    frontier = received.frontier
    if not frontier.follows(reached):
        back = {p: (n, frontier[p]) for p, n in reached.items() if frontier[p] < n}
        raise broken(f"its frontier went back: {dict(sorted(back.items())[:3])}")
    if received.end is not None and not isinstance(received.end, Frontier):
        raise broken(f"its end is {type(received.end).__name__}, not a Frontier")
    if received.end is not None and (behind := _behind(received.end, frontier)):
        partition, (end, position) = behind[0]
        raise broken(f"its frontier is at {position} of partition {partition!r}, and its end before that, at {end}")
    if received.rows > 2 * AT_ONCE:
        raise broken(f"it gave {received.rows} records at once, and at most {2 * AT_ONCE} are taken")
    for stream, batch in received.batches:
        if not batch.num_rows:
            continue
        if stream not in streams:
            raise broken(f"it gave records of the stream {stream!r}, and it declares {sorted(streams)}")
        if not raw and (problem := _unlike(batch, streams[stream])):
            raise broken(f"a batch of the stream {stream!r}: {problem}")
        try:
            places = ArrowRows().places(batch, source)
        except UnplacedRecords as error:
            raise broken(error.evidence["problem"]) from error
        lower = np.array([reached[p] for p in places.partitions], np.int64)
        upper = np.array([frontier[p] for p in places.partitions], np.int64)
        codes = np.zeros(len(places.positions), np.int64) if places.codes is None else places.codes
        outside = (places.positions < lower[codes]) | (places.positions >= upper[codes])
        if outside.any():
            at = int(outside.argmax())
            code = int(codes[at])
            raise broken(
                f"it gave the record {int(places.positions[at])} of partition {places.partitions[code]!r}, "
                f"and those from {lower[code]} to before {upper[code]} were due"
            )


def _unlike(batch: pa.RecordBatch, columns: pa.Schema) -> str:
    """Return why a batch does not have these columns, "" when it has."""
    for field in columns:
        at = batch.schema.get_all_field_indices(field.name)
        if len(at) != 1:
            return f"it has {len(at)} columns named {field.name!r}"
        column = batch.column(at[0])
        if not column.type.equals(field.type):
            return f"the column {field.name!r} is {column.type}, and was declared as {field.type}"
        if not field.nullable and column.null_count:
            return f"a value of the column {field.name!r} is missing, and it is NOT NULL"
    return ""
