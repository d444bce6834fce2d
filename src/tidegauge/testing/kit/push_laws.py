"""The laws of every source that pushes (`tidegauge.sources.push.protocol`), each a function over a bench.

Invariant: a law compares a connection with the records that the bench added, never with another connection.
"""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Mapping
from typing import Any, Final

from tidegauge.errors.base import Transient
from tidegauge.remap.binding import Bound
from tidegauge.remap.frontier import ORIGIN
from tidegauge.sources.protocol import BadRecord
from tidegauge.sources.push.law import AT_ONCE
from tidegauge.sources.push.protocol import DecodedLater, PushSource
from tidegauge.testing.kit.connection import (
    WAIT,
    Taken,
    as_added,
    connected,
    decoded,
    end_of,
    follow,
    follow_on,
    patience,
    refusal,
    take,
)
from tidegauge.testing.kit.push_bench import Cuts, PushBench, Restores
from tidegauge.testing.kit.rows import same
from tidegauge.testing.kit.source_bench import Finishes, Loses, Recreates, Spoils, WithSecrets
from tidegauge.testing.kit.trial import Law, LawBroken, NotTried, expect

__all__ = ["PUSH_LAWS"]

SOON: Final = 3.0
"""Seconds: `receive` may be late by these on a busy machine."""


def it_is_a_value(bench: PushBench) -> None:
    """A source is a picklable value, which describes itself the same each time, in JSON and without secrets.

    Make it a frozen dataclass of plain values. Open the connection in `connect`.
    """
    source = bench.source
    expect(isinstance(source, PushSource), f"{source!r} lacks a member of `PushSource`")
    packed, said = pickle.dumps(source), _described(source)
    copy = pickle.loads(packed)  # noqa: S301 (our own, from the line before)
    follow(bench, end_of(bench.add(3)))  # whatever it keeps of that
    for who, now in (("it", _described(source)), ("a copy", _described(copy))):
        expect(now == said, f"after a connection {who} describes itself as {now}, and before as {said}")
    expect(copy == source, f"a pickled copy is another value: {copy!r}, of {source!r}")
    expect(isinstance(source.unit, str) and source.unit, f"its unit is {source.unit!r}, and should be a word")
    expect(source.streams, "it has no streams")
    expect(dict(copy.streams) == dict(source.streams), f"the streams of a copy are {dict(copy.streams)}")
    for secret in bench.secrets if isinstance(bench, WithSecrets) else ():
        expect(secret not in said, "its description has a secret in it")
        expect(secret.encode() not in packed, "its pickle has a secret in it")


def _described(source: PushSource) -> str:
    return json.dumps(dict(source.describe()), sort_keys=True, allow_nan=False)


def each_record_comes_once_and_in_order(bench: PushBench) -> None:
    """A connection gives the records that were added, each once, in order, and goes on as upstream grows.

    Let each `receive` give all records from the frontier reached before up to its own, and no others.
    """
    added = [*bench.add(8)]
    with connected(bench) as subscription:
        taken = follow_on(bench, subscription, end_of(added), Taken())
        as_added(added, taken.records, "of 8 records")
        added += bench.add(5)
        follow_on(bench, subscription, end_of(added), taken)
    as_added(added, taken.records, "of 8 records, and 5 more")


def the_records_depend_on_the_start_alone(bench: PushBench) -> None:
    """A connection from any frontier reached gives the records from there on, whatever the limit was.

    Begin at `start`, inclusive, in each partition. It may be any frontier that a `receive` came with.
    """
    added = [*bench.add(4)]
    with connected(bench) as subscription:
        taken = follow_on(bench, subscription, end_of(added), Taken(), limit=1)
        added += bench.add(4)
        follow_on(bench, subscription, end_of(added), taken, limit=1)
    for limit in (1, 5, AT_ONCE):
        for start in {ORIGIN, *taken.stops}:
            again = follow(bench, end_of(added), start, limit=limit)
            as_added(added, again.records, f"from {dict(start)} with a limit of {limit}", start)


def without_news_it_gives_nothing_soon(bench: PushBench) -> None:
    """`receive` returns None within its seconds when there is no news, time and again, and then sees new records.

    Wait with the time limit that `receive` is given. A frontier that was reached before is no news.
    """
    added = [*bench.add(3)]
    with connected(bench) as subscription:
        taken = follow_on(bench, subscription, end_of(added), Taken())
        quiet = late = 0
        for _ in range(6):
            begun = time.monotonic()
            received = subscription.receive(3, WAIT)
            took = time.monotonic() - begun
            late = late + 1 if took >= WAIT + SOON else 0  # once may be the machine
            expect(late < 2, f"receive(3, {WAIT}) without news took {took:.1f} seconds, twice: a stop waits for it")
            quiet += received is None
            if received is not None:
                take(bench, taken, received)
        expect(quiet >= 4, f"{6 - quiet} of 6 calls without news gave something: progress that is none")
        added += bench.add(2)
        follow_on(bench, subscription, end_of(added), taken)
    as_added(added, taken.records, "of 3 records, and 2 more after a silence")


def the_end_says_how_far_upstream_goes(bench: PushBench) -> None:
    """The end, where upstream says it, has all records that there are, also on a new connection without news.

    Ask for it when the connection is made, and take the records that came since into it.
    """
    added = [*bench.add(3)]
    first = follow(bench, end_of(added))
    added += bench.add(2)
    if first.end is None:
        raise NotTried("it says no end")
    for start in (ORIGIN, first.reached, end_of(added)):
        taken, waiting = Taken(reached=start), patience(lambda: "it said no end on a new connection")
        with connected(bench, start) as subscription:
            while taken.end is None:
                waiting()
                if (received := subscription.receive(1, WAIT)) is not None:
                    take(bench, taken, received)
        right = end_of(added).less_equal(taken.end) and taken.end.distance(end_of(added)) == 0
        expect(right, f"from {dict(start)} the end is {dict(taken.end)}, and upstream's {dict(end_of(added))}")


def acknowledging_loses_nothing_that_is_left(bench: PushBench) -> None:
    """Upstream is told the same again, and less than before; all from the acknowledged frontier on comes as before.

    The frontier is exclusive: keep the record that is there. Do nothing when upstream knows it already.
    """
    added = [*bench.add(9)]
    taken = follow(bench, end_of(added), limit=1)
    half = taken.stops[len(taken.stops) // 2]
    with connected(bench) as subscription:
        follow_on(bench, subscription, half, Taken())
        for frontier in (ORIGIN, half, half, ORIGIN):
            subscription.acknowledge(frontier)
        subscription.receive(1, WAIT)  # the connection goes on
    told = f"after {dict(half)} was acknowledged"
    as_added(added, follow(bench, end_of(added), half).records, told, half)
    added += bench.add(2)
    as_added(added, follow(bench, end_of(added), half).records, f"{told}, with 2 more records", half)


def a_connection_that_is_cut_is_an_error_that_passes(bench: PushBench) -> None:
    """A cut is never the end, nor silence for ever: it raises `Transient` or an `OSError`, and the next goes on.

    Raise when the other side closes. An empty read is a closed connection, not the absence of news.
    """
    if not isinstance(bench, Cuts):
        raise NotTried("the bench has no `cut`")
    added = [*bench.add(6)]
    with connected(bench) as subscription:
        taken = follow_on(bench, subscription, end_of(added), Taken())
        bench.cut()
        added += bench.add(6)
        try:
            follow_on(bench, subscription, end_of(added), taken)
        except (OSError, Transient):
            expect(not taken.reached.sealed, "a connection that was cut gave a sealed frontier")
        else:
            raise LawBroken("a connection was cut, and no call on it raised")
    again = follow(bench, end_of(added), taken.reached)
    as_added(added, [*taken.records, *again.records], "of two connections, the first of them cut")


def records_that_are_gone_are_refused(bench: PushBench) -> None:
    """A start whose records upstream has deleted is refused: the source does not begin with the next that there are.

    Compare `start` with the oldest record that upstream has, and raise a `Definite` error.
    """
    added = [*bench.add(6)]
    expect(
        refusal(bench, ORIGIN, Bound(), due=False) is None,
        "a connection from the origin is refused, and nothing is gone",
    )
    if not isinstance(bench, Loses):
        raise NotTried("the bench has no `lose`")
    bench.lose()
    expect(
        refusal(bench, ORIGIN, Bound(), due=True) is not None,
        "the oldest record is gone, and it begins with the next",
    )
    known = Bound(frontier=end_of(added))
    expect(
        refusal(bench, end_of(added), known, due=False) is None,
        "a record is gone that it has, and it is refused all the same",
    )


def an_older_backup_is_refused(bench: PushBench) -> None:
    """An upstream that has less than the flow had of it is refused, also when other records take some of the places.

    Say upstream's end on each connection, before any record; the flow compares it with what it has.
    """
    if not isinstance(bench, Restores):
        raise NotTried("the bench has no `restore`")
    added = [*bench.add(9)]
    end = follow(bench, end_of(added), limit=1).stops[-1]
    known = Bound(frontier=end)
    expect(
        refusal(bench, end, known, due=False) is None,
        f"a connection from {dict(end)} is refused, and nothing has changed",
    )
    bench.restore(end_of(added[: len(added) // 3]))
    expect(
        refusal(bench, end, known, due=True) is not None,
        f"6 of 9 records were taken away, and it goes on from {dict(end)}",
    )
    bench.add(1)
    goes_on = f"6 of 9 records were taken away and one came, and it goes on from {dict(end)}"
    expect(refusal(bench, end, known, due=True) is not None, goes_on)


def another_log_is_refused(bench: PushBench) -> None:
    """A log that takes the place of another one has another identity, and no connection is without one then.

    Return in `identity` a value that another log would not have, such as an id that it was made with.
    """
    added = [*bench.add(4)]
    with connected(bench) as subscription:
        identity = subscription.identity
    with connected(bench) as subscription:
        again = subscription.identity
    expect(again == identity, f"the identity of one log is {identity!r}, and then {again!r}")
    if not isinstance(bench, Recreates):
        raise NotTried("the bench has no `recreate`")
    bench.recreate()
    bench.add(9)
    known = Bound(frontier=end_of(added), identity=identity)
    expect(refusal(bench, end_of(added), known, due=True) is not None, f"another log is taken for {identity!r}")


def the_end_is_sealed_once_all_has_come(bench: PushBench) -> None:
    """A sealed frontier comes when upstream says that it has ended, with or after the last record, each time.

    Seal the frontier on every connection, also on one that has no record left to give.
    """
    if not isinstance(bench, Finishes):
        raise NotTried("the bench has no `finish`")
    added = [*bench.add(4)]
    before = follow(bench, end_of(added))
    expect(not before.reached.sealed, f"{dict(before.reached)} is sealed while upstream goes on")
    bench.finish()
    for start in (ORIGIN, before.reached):
        taken = follow(bench, end_of(added).seal(), start)
        as_added(added, taken.records, f"from {dict(start)} to the end", start)


def bad_records_are_told_and_the_others_decoded(bench: PushBench) -> None:
    """A bad record is handed over with its place and its bytes, in a task; the records around it are decoded.

    Receive bytes, and decode them in `decode`. Catch the error of one record, and go on with the next.
    """
    source = bench.source
    if not isinstance(bench, Spoils) or not isinstance(source, DecodedLater):
        raise NotTried("the bench has no `spoil`, or the source no `decode`")
    added = [*bench.add(3)]
    raw = bench.spoil()
    added += bench.add(3)
    bad: list[BadRecord] = []
    rows: list[Mapping[str, Any]] = []
    reached, waiting = ORIGIN, patience(lambda: "the records around a bad one did not come")
    with connected(bench) as subscription:
        while not end_of(added).less_equal(reached):
            waiting()
            if (received := subscription.receive(3, WAIT)) is not None:
                reached = received.frontier
                for stream, batch in received.batches:
                    rows += decoded(source, stream, batch, bad.append)
    wanted = [{"row": record.row} for record in added]
    same(wanted, [{"row": row} for row in rows], "of 3 records, a bad one, and 3 more")
    expect(len(bad) == 1, f"of one bad record {len(bad)} were handed over: {bad}")
    record = bad[0]
    expect(raw in record.raw, f"the bytes of a bad record are {record.raw!r}, and it was {raw!r}")
    there = 0 <= record.position < reached[record.partition]
    expect(there, f"a bad record is said to be in {record.partition!r} at {record.position}, of {dict(reached)}")
    expect(record.code.startswith("TG-") and record.message, f"it says {record.code!r} and {record.message!r}")


PUSH_LAWS: Final[tuple[Law[PushBench], ...]] = (
    it_is_a_value,
    each_record_comes_once_and_in_order,
    the_records_depend_on_the_start_alone,
    without_news_it_gives_nothing_soon,
    the_end_says_how_far_upstream_goes,
    acknowledging_loses_nothing_that_is_left,
    a_connection_that_is_cut_is_an_error_that_passes,
    records_that_are_gone_are_refused,
    an_older_backup_is_refused,
    another_log_is_refused,
    the_end_is_sealed_once_all_has_come,
    bad_records_are_told_and_the_others_decoded,
)
"""All laws of a source that pushes."""
