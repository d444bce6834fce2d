"""The laws of every source that pushes (`tidegauge.sources.push.protocol`), as plain functions over a bench.

A bench is a source and its upstream, with the hands that the laws need there. It knows by itself which records were
added, and where: a source is never compared with itself. A law takes a fresh bench and raises `AssertionError`, or
the source's own error, where the source breaks it. A bench says by False or None what nobody can do to its upstream;
that part of the law then holds for want of cases.
"""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa

from tidegauge.errors.base import Definite, Transient
from tidegauge.errors.running import UpstreamRecreated
from tidegauge.remap.binding import Bound
from tidegauge.remap.frontier import ORIGIN, Frontier
from tidegauge.sources.protocol import BadRecord, from_time_of
from tidegauge.sources.push.law import AT_ONCE, lawful, still_there
from tidegauge.sources.push.protocol import DecodedLater, PushSource, Received, Subscription

__all__ = ["PUSH_LAWS", "Placed", "PushBench"]

NAME: Final = "it"
WAIT: Final = 0.2
"""Seconds that `receive` may wait."""
PATIENCE: Final = 30.0
"""Seconds after which something is taken never to come."""


class Placed(NamedTuple):
    """A record of upstream: its stream, its place, and the row that it is to be."""

    stream: str
    partition: str
    position: int
    row: Mapping[str, Any]


class PushBench(Protocol):
    """A source on an upstream of its own, which is empty at first. secrets: texts that nobody may find in it."""

    source: PushSource
    secrets: Sequence[str]

    def add(self, count: int) -> list[Placed]:
        """Append that many records to upstream, and return them in the order of each partition."""
        ...

    def spoil(self) -> bytes | None:
        """Append a record that cannot be decoded, and return its bytes; None if there is no such record."""
        ...

    def cut(self) -> bool:
        """Cut the connections there are."""
        ...

    def forget(self) -> bool:
        """Delete the oldest record, of which upstream was not told that it is durable."""
        ...

    def restore(self, end: Frontier) -> bool:
        """Take away all records from `end` on, under the same identity."""
        ...

    def replace(self) -> bool:
        """Put another log in the place of this one."""
        ...

    def seal(self) -> bool:
        """Say that nothing more will come."""
        ...


@dataclass
class Taken:
    """What a connection gave: the records, the frontier reached, the frontiers on the way, and upstream's end."""

    records: list[Placed] = field(default_factory=list)
    reached: Frontier = ORIGIN
    stops: list[Frontier] = field(default_factory=list)
    end: Frontier | None = None


@contextmanager
def connected(bench: PushBench, start: Frontier = ORIGIN, bound: Bound | None = None) -> Iterator[Subscription]:
    """A connection, which is closed again."""
    subscription = bench.source.connect(start, bound or Bound())
    try:
        yield subscription
    finally:
        subscription.close()


def none(record: BadRecord) -> None:
    raise AssertionError(record)


def decoded(
    source: PushSource, stream: str, batch: pa.RecordBatch, on_bad: Callable[[BadRecord], None]
) -> list[Mapping[str, Any]]:
    """The rows of a batch, decoded by a copy of the source, as a task does it."""
    columns = source.streams[stream]
    if isinstance(source, DecodedLater):
        rows = pickle.loads(pickle.dumps(source)).decode(stream, batch, on_bad)
        assert rows.schema.equals(columns)
    else:
        rows = pa.RecordBatch.from_arrays([batch[name] for name in columns.names], schema=columns)
    found: list[Mapping[str, Any]] = rows.to_pylist()
    return found


def take(bench: PushBench, taken: Taken, received: Received) -> None:
    """Take in a receipt as the flow does, with its checks."""
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
        taken.records += [Placed(stream, *at, row) for at, row in zip(places, rows, strict=True)]
    taken.reached = received.frontier
    taken.stops.append(received.frontier)


def follow(bench: PushBench, goal: Frontier, start: Frontier = ORIGIN, *, limit: int = 3) -> Taken:
    """Take what one connection gives until it has come to a frontier."""
    with connected(bench, start) as subscription:
        return follow_on(bench, subscription, goal, Taken(reached=start), limit=limit)


def follow_on(bench: PushBench, subscription: Subscription, goal: Frontier, taken: Taken, *, limit: int = 3) -> Taken:
    deadline = time.monotonic() + PATIENCE
    while not goal.less_equal(taken.reached):
        assert time.monotonic() < deadline, f"it came to {taken.reached}, and never to {goal}"
        if (received := subscription.receive(limit, WAIT)) is not None:
            take(bench, taken, received)
    return taken


def end_of(records: Sequence[Placed]) -> Frontier:
    """The frontier behind these records."""
    found: dict[str, int] = {}
    for record in records:
        found[record.partition] = max(record.position + 1, found.get(record.partition, 0))
    return Frontier(found)


def since(records: Sequence[Placed], start: Frontier) -> list[Placed]:
    """The records from a frontier on, in the order of each partition and stream."""
    found = [record for record in records if record.position >= start[record.partition]]
    return sorted(found, key=lambda record: (record.partition, record.stream, record.position))


def in_order(records: Sequence[Placed]) -> list[Placed]:
    """The records by partition and stream, each in the order of its own: sorting is stable."""
    return sorted(records, key=lambda record: (record.partition, record.stream))


def it_is_a_value(bench: PushBench) -> None:
    """A source is a picklable value, which describes itself the same each time, in JSON and without secrets."""
    source = bench.source
    assert isinstance(source, PushSource)
    packed = pickle.dumps(source)
    copy = pickle.loads(packed)
    said = json.dumps(dict(source.describe()), sort_keys=True, allow_nan=False)
    follow(bench, end_of(bench.add(3)))  # whatever it keeps of that
    for one in (source, copy):
        assert json.dumps(dict(one.describe()), sort_keys=True) == said
    assert copy == source == pickle.loads(pickle.dumps(source))
    assert isinstance(source.unit, str)
    assert source.unit
    assert source.streams
    assert dict(copy.streams) == dict(source.streams)
    for secret in bench.secrets:
        assert secret not in said
        assert secret.encode() not in packed


def each_record_comes_once_and_in_order(bench: PushBench) -> None:
    """A connection gives what was added, each record once, in order, and goes on as upstream grows."""
    added = bench.add(8)
    with connected(bench) as subscription:
        taken = follow_on(bench, subscription, end_of(added), Taken())
        added += bench.add(5)
        follow_on(bench, subscription, end_of(added), taken)
    assert in_order(taken.records) == since(added, ORIGIN)


def what_comes_depends_on_the_start_alone(bench: PushBench) -> None:
    """A connection from any frontier reached gives the records from there on, whatever the limit was."""
    added = bench.add(4)
    with connected(bench) as subscription:
        taken = follow_on(bench, subscription, end_of(added), Taken(), limit=1)
        added += bench.add(4)
        follow_on(bench, subscription, end_of(added), taken, limit=1)
    goal = end_of(added)
    for limit in (1, 5, AT_ONCE):
        for start in {ORIGIN, *taken.stops}:
            again = follow(bench, goal, start, limit=limit)
            assert in_order(again.records) == since(added, start)


def without_news_it_gives_nothing_soon(bench: PushBench) -> None:
    """`receive` returns within its seconds when there is no news, time and again, and then sees what comes."""
    added = bench.add(3)
    with connected(bench) as subscription:
        taken = follow_on(bench, subscription, end_of(added), Taken())
        quiet = 0
        for _ in range(6):
            begun = time.monotonic()
            received = subscription.receive(3, WAIT)
            assert time.monotonic() - begun < WAIT + PATIENCE / 3, "a stop waits for it"
            quiet += received is None
            if received is not None:
                take(bench, taken, received)
        assert quiet >= 4, "progress that is none is no news"
        added += bench.add(2)
        follow_on(bench, subscription, end_of(added), taken)
    assert in_order(taken.records) == since(added, ORIGIN)


def the_end_says_how_far_upstream_goes(bench: PushBench) -> None:
    """The end, where upstream says it, has all records there are, also on a new connection without news."""
    added = bench.add(3)
    first = follow(bench, end_of(added))
    added += bench.add(2)
    if first.end is None:
        return
    for start in (ORIGIN, first.reached, end_of(added)):
        taken, deadline = Taken(reached=start), time.monotonic() + PATIENCE
        with connected(bench, start) as subscription:
            while taken.end is None:
                assert time.monotonic() < deadline, "it does not say its end"
                if (received := subscription.receive(1, WAIT)) is not None:
                    take(bench, taken, received)
        assert end_of(added).less_equal(taken.end)
        assert taken.end.distance(end_of(added)) == 0


def what_is_not_acknowledged_is_kept(bench: PushBench) -> None:
    """What upstream is told is told again, and less than before: everything from there on comes as before."""
    added = bench.add(9)
    taken = follow(bench, end_of(added), limit=1)
    half = taken.stops[len(taken.stops) // 2]
    with connected(bench) as subscription:
        follow_on(bench, subscription, half, Taken())
        for frontier in (ORIGIN, half, half, ORIGIN):
            subscription.acknowledge(frontier)
        subscription.receive(1, WAIT)  # the connection goes on
    assert in_order(follow(bench, end_of(added), half).records) == since(added, half)
    added += bench.add(2)
    assert in_order(follow(bench, end_of(added), half).records) == since(added, half)


def a_connection_that_is_cut_is_an_error_that_passes(bench: PushBench) -> None:
    """It is never the end, nor no news for ever: the next connection goes on from the frontier reached."""
    added = bench.add(6)
    with connected(bench) as subscription:
        taken = follow_on(bench, subscription, end_of(added), Taken())
        if not bench.cut():
            return
        added += bench.add(6)
        try:
            follow_on(bench, subscription, end_of(added), taken)
        except (OSError, Transient):
            assert not taken.reached.sealed
        else:
            raise AssertionError("nobody hears that the connection was cut")
    again = follow(bench, end_of(added), taken.reached)
    assert in_order([*taken.records, *again.records]) == since(added, ORIGIN)


def refusal(bench: PushBench, start: Frontier, known: Bound) -> Definite | None:
    """Why a flow that is at `start` and has `known` bound goes on no more; None if it does."""
    deadline = time.monotonic() + 5 * WAIT
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


def records_that_are_gone_are_refused(bench: PushBench) -> None:
    """A start whose records upstream deleted is refused: nobody begins with the next ones that there are."""
    added = bench.add(6)
    assert refusal(bench, ORIGIN, Bound()) is None
    if bench.forget():
        assert refusal(bench, ORIGIN, Bound()) is not None
    assert refusal(bench, end_of(added), Bound(frontier=end_of(added))) is None


def an_older_backup_is_refused(bench: PushBench) -> None:
    """An upstream that has less than the flow had of it is refused, also with other records in some of the places."""
    added = bench.add(9)
    stops = follow(bench, end_of(added), limit=1).stops
    end, half = stops[-1], added[: len(added) // 3]
    known = Bound(frontier=end)
    assert refusal(bench, end, known) is None
    if not bench.restore(end_of(half)):
        return
    assert refusal(bench, end, known) is not None
    bench.add(1)
    assert refusal(bench, end, known) is not None


def another_log_is_refused(bench: PushBench) -> None:
    """A log that takes the place of another one has another identity, and no connection is without one then."""
    added = bench.add(4)
    with connected(bench) as subscription:
        identity = subscription.identity
    with connected(bench) as subscription:
        assert subscription.identity == identity
    if not bench.replace():
        return
    bench.add(9)
    assert refusal(bench, end_of(added), Bound(frontier=end_of(added), identity=identity)) is not None


def the_end_is_sealed_once_all_has_come(bench: PushBench) -> None:
    """A sealed frontier comes when upstream says so, with or after the last record, on every connection."""
    added = bench.add(4)
    before = follow(bench, end_of(added))
    assert not before.reached.sealed
    if not bench.seal():
        return
    for start in (ORIGIN, before.reached):
        taken = follow(bench, end_of(added).seal(), start)
        assert taken.reached.sealed
        assert in_order(taken.records) == since(added, start)


def bad_records_are_told_and_the_others_decoded(bench: PushBench) -> None:
    """A bad record is told with its place and its bytes, in a task; the records around it are decoded."""
    source, added = bench.source, bench.add(3)
    raw = bench.spoil()
    added += bench.add(3)
    if raw is None or not isinstance(source, DecodedLater):
        return
    bad: list[BadRecord] = []
    rows: list[Mapping[str, Any]] = []
    reached, deadline = ORIGIN, time.monotonic() + PATIENCE
    with connected(bench) as subscription:
        while not end_of(added).less_equal(reached):
            assert time.monotonic() < deadline
            if (received := subscription.receive(3, WAIT)) is not None:
                reached = received.frontier
                for stream, batch in received.batches:
                    rows += decoded(source, stream, batch, bad.append)
    assert sorted(map(repr, rows)) == sorted(repr(record.row) for record in added)
    assert len(bad) == 1
    assert raw in bad[0].raw
    assert bad[0].position < reached[bad[0].partition]
    assert bad[0].code.startswith("TG-")
    assert bad[0].message


PUSH_LAWS: Final[Mapping[str, Callable[[PushBench], None]]] = {
    law.__name__: law
    for law in (
        it_is_a_value,
        each_record_comes_once_and_in_order,
        what_comes_depends_on_the_start_alone,
        without_news_it_gives_nothing_soon,
        the_end_says_how_far_upstream_goes,
        what_is_not_acknowledged_is_kept,
        a_connection_that_is_cut_is_an_error_that_passes,
        records_that_are_gone_are_refused,
        an_older_backup_is_refused,
        another_log_is_refused,
        the_end_is_sealed_once_all_has_come,
        bad_records_are_told_and_the_others_decoded,
    )
}
