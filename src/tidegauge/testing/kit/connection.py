"""A connection under trial: the records that it gives, taken in as a flow does, and compared with those added.

Invariant: every receipt passes the checks that a flow makes of it, and rows are decoded by a copy, as in a task.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from tidegauge.errors.base import Definite
from tidegauge.errors.running import UpstreamRecreated
from tidegauge.remap.binding import Bound
from tidegauge.remap.frontier import ORIGIN, Frontier
from tidegauge.sources.abilities import from_time_of
from tidegauge.sources.protocol import BadRecord
from tidegauge.sources.push.law import lawful, still_there
from tidegauge.sources.push.protocol import DecodedLater, PushSource, Received, Subscription
from tidegauge.testing.kit.push_bench import PushBench, PushedRecord
from tidegauge.testing.kit.rows import same
from tidegauge.testing.kit.trial import expect
from tidegauge.testing.kit.upstream import NAME, none

__all__ = [
    "WAIT",
    "Taken",
    "as_added",
    "connected",
    "decoded",
    "end_of",
    "follow",
    "follow_on",
    "patience",
    "refusal",
    "take",
]

WAIT: Final = 0.2
"""Seconds that `receive` may wait."""
PATIENCE = 10.0
"""Seconds after which something is taken never to come."""


@dataclass
class Taken:
    """What a connection gave: the records, the frontier reached, the frontiers on the way, and upstream's end."""

    records: list[PushedRecord] = field(default_factory=list)
    reached: Frontier = ORIGIN
    stops: list[Frontier] = field(default_factory=list)
    end: Frontier | None = None


def patience(goal: Callable[[], str]) -> Callable[[], None]:
    """Return a function to call while waiting, which raises `LawBroken` when it has been too long. goal: in words."""
    deadline = time.monotonic() + PATIENCE
    return lambda: expect(time.monotonic() < deadline, f"within {PATIENCE:g} seconds {goal()}")


@contextmanager
def connected(bench: PushBench, start: Frontier = ORIGIN, bound: Bound | None = None) -> Iterator[Subscription]:
    """A connection, which is closed again."""
    subscription = bench.source.connect(start, bound or Bound())
    try:
        yield subscription
    finally:
        subscription.close()


def decoded(
    source: PushSource, stream: str, batch: pa.RecordBatch, on_bad: Callable[[BadRecord], None]
) -> list[Mapping[str, Any]]:
    """Return the rows of a batch, decoded by a copy of the source."""
    columns = source.streams[stream]
    if isinstance(source, DecodedLater):
        copy: DecodedLater = pickle.loads(pickle.dumps(source))  # noqa: S301 (our own, from the line itself)
        rows = copy.decode(stream, batch, on_bad)
        expect(rows.schema.equals(columns), f"rows are decoded to {rows.schema}, and declared are {columns}")
    else:
        rows = pa.RecordBatch.from_arrays([batch[name] for name in columns.names], schema=columns)
    found: list[Mapping[str, Any]] = rows.to_pylist()
    return found


def take(bench: PushBench, taken: Taken, received: Received) -> None:
    """Take in a receipt as a flow does, with its checks."""
    source = bench.source
    if received.end is not None:
        still_there(NAME, ORIGIN, taken.reached if taken.end is None else taken.end, received.end)
        taken.end = received.end
    lawful(NAME, source.streams, taken.reached, received, raw=isinstance(source, DecodedLater))
    clock = from_time_of(source)  # type: ignore[arg-type]
    for partition, (_, position) in received.frontier.since(taken.reached).items():
        clock.check(partition, position)
    for stream, batch in received.batches:
        places = zip(batch["_partition"].to_pylist(), batch["_offset"].to_pylist(), strict=True)
        rows = decoded(source, stream, batch, none)
        taken.records += [PushedRecord(stream, *at, row) for at, row in zip(places, rows, strict=True)]
    taken.reached = received.frontier
    taken.stops.append(received.frontier)


def follow(bench: PushBench, goal: Frontier, start: Frontier = ORIGIN, *, limit: int = 3) -> Taken:
    """Take the records of one connection until it has come to a frontier."""
    with connected(bench, start) as subscription:
        return follow_on(bench, subscription, goal, Taken(reached=start), limit=limit)


def follow_on(bench: PushBench, subscription: Subscription, goal: Frontier, taken: Taken, *, limit: int = 3) -> Taken:
    """Take more records of a connection until it has come to a frontier."""
    waiting = patience(lambda: f"it came to {_told(taken.reached)}, and not to {_told(goal)}")
    while not goal.less_equal(taken.reached):
        waiting()
        if (received := subscription.receive(limit, WAIT)) is not None:
            take(bench, taken, received)
    return taken


def _told(frontier: Frontier) -> str:
    return f"{dict(frontier)}{', sealed' if frontier.sealed else ''}"


def end_of(records: Sequence[PushedRecord]) -> Frontier:
    """Return the frontier behind these records."""
    found: dict[str, int] = {}
    for record in records:
        found[record.partition] = max(record.position + 1, found.get(record.partition, 0))
    return Frontier(found)


def as_added(
    added: Sequence[PushedRecord], found: Sequence[PushedRecord], when: str, start: Frontier = ORIGIN
) -> None:
    """Raise `LawBroken` unless these are the records added from a frontier on, in the order of each partition."""
    wanted = [record for record in added if record.position >= start[record.partition]]
    wanted.sort(key=lambda record: (record.partition, record.stream, record.position))
    came = sorted(found, key=lambda record: (record.partition, record.stream))  # sorting is stable
    same([record._asdict() for record in wanted], [record._asdict() for record in came], when, ordered=True)


def refusal(bench: PushBench, start: Frontier, known: Bound, *, due: bool) -> Definite | None:
    """Return why a flow that is at `start` and has `known` bound goes on no more; None if it does.

    due: whether it should not. Then a refusal is waited for as anything else is.
    """
    deadline = time.monotonic() + (PATIENCE if due else 5 * WAIT)
    try:
        with connected(bench, start, known) as subscription:
            if known.identity and subscription.identity != known.identity:
                return UpstreamRecreated(source=NAME, known=known.identity, found=subscription.identity)
            while time.monotonic() < deadline:
                if (received := subscription.receive(3, WAIT)) is None:
                    continue
                if received.end is not None:
                    still_there(NAME, known.frontier, start, received.end)
                take(bench, Taken(reached=start), received)
                return None
    except Definite as error:
        return error
    return None
