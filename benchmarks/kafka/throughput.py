"""Rows a second: orders in JSON that are in a topic of four partitions already, into one table and into three.

Ours runs until it has caught up, theirs with the trigger `availableNow`, on a warm session; bytewax runs on one
worker until the end of the partitions, in an environment of its own, in its fastest way, and writes one table. Theirs
are written without syncing, as far as is known; ours are synced and committed.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from benchmarks.figures import Figure, Goal
from benchmarks.kafka.sides import session_with_connector, source, stream
from benchmarks.kafka.topics import filled
from benchmarks.peers.environments import Answering, Missing, answering, bytewax_python
from benchmarks.room import Room
from benchmarks.sides import Account, for_each_batch, ours, queries
from tidegauge.testing import Endpoint

__all__ = ["PARTITIONS", "measure", "turns"]

PARTITIONS: Final = 4
_WAYS: Final = ("as_users_write_it", "arrow")
_BATCHES: Final = (500, 1000)


def measure(room: Room, broker: Endpoint) -> list[Figure]:
    """Measure one output and three over some millions of messages, in turns."""
    sizes = room.size(2_000_000, 20_000), room.size(200_000, 10_000)
    topic, few, rows = filled(broker, *sizes, partitions=PARTITIONS)
    figures = turns(room, broker, topic, few, rows, times=room.size(3, 1))
    return figures + _bytewax(room, broker, topic, few, rows, figures[0])


def turns(room: Room, broker: Endpoint, topic: str, few: str, rows: int, *, times: int) -> list[Figure]:
    """Measure the cases by turns, after a turn over `few` that does not count."""
    account = Account()
    with session_with_connector() as session:
        for over, seen, count in ((few, Account(), 2), (topic, account, times)):
            mine, read = source(broker.servers, over), partial(stream, session, broker.servers, over)
            for turn in range(count):
                for outputs in (1, 3):
                    ours(room, session, mine, seen, outputs=outputs)
                    queries(room, session, read, seen, outputs=outputs)
                ours(room, session, mine, seen, outputs=3, steps="Arrow")
                ours(room, session, mine, seen, outputs=3, steps="SQL in the JVM")
                for_each_batch(room, session, read, seen)
                room.say(f"turn {turn + 1} over {over}")
    account.agree()
    rates = account.rates(rows)
    details = {"rows": rows, "written": account.rows, "seconds": account.seconds}
    what = f"JSON of {rows:,} messages to Delta"
    figures = [
        Figure(
            f"{what}, 1 output", "rows/s", rates["ours 1"], rates["queries 1"], "Structured Streaming, 1 query",
            Goal("ratio", ">=", 1.7), details=details,
        )
    ]  # fmt: skip
    five, half = Goal("ratio", ">=", 5.0), Goal("ratio", ">=", 2.5)
    seven, four = Goal("ratio", ">=", 7.0), Goal("ratio", ">=", 4.5)
    for case, steps, goals in (
        ("ours 3", "SQL", (five, half)),
        ("ours 3, Arrow", "Arrow functions", (five, half)),
        ("ours 3, SQL in the JVM", "SQL that the JVM runs", (seven, four)),
    ):
        figures += [
            Figure(
                f"{what}, 3 outputs, two with {steps}", "rows/s", rates[case], rates["queries 3"],
                "Structured Streaming, 3 queries", goals[0],
            ),
            Figure(
                "the same", "rows/s", rates[case], rates["foreachBatch 3"],
                "Structured Streaming, foreachBatch with persist", goals[1],
            ),
        ]  # fmt: skip
    return figures


def _bytewax(room: Room, broker: Endpoint, topic: str, few: str, rows: int, beside: Figure) -> list[Figure]:
    """Measure bytewax in the way and with the batch size that are its fastest over `few`; nothing where it is not."""
    try:
        python = bytewax_python(reads_kafka=True)
        with answering(python, "benchmarks.peers.kafka_with_bytewax", broker.servers) as peer:
            _run(room, peer, few, "arrow", 1000)
            tried = {(way, size): _run(room, peer, few, way, size)["seconds"] for way in _WAYS for size in _BATCHES}
            way, size = min(tried, key=lambda case: tried[case])
            found = _run(room, peer, topic, way, size)
    except Missing as missing:
        room.say(f"without bytewax: {missing}")
        return []
    if found["rows"] != rows:
        raise RuntimeError(f"bytewax wrote {found['rows']} rows of {rows}")
    how = {"way": way, "batch": size, "tried": {f"{way}, {size}": taken for (way, size), taken in tried.items()}}
    return [
        Figure(
            beside.what, "rows/s", beside.ours[-1:], (rows / found["seconds"],),
            f"bytewax to Parquet, 1 worker, {way} by {size}", details=how,
        )
    ]  # fmt: skip


def _run(room: Room, peer: Answering, topic: str, way: str, size: int) -> dict[str, float]:
    target = room.fresh("bytewax")
    target.mkdir()
    try:
        return peer.ask(topic, way, size, target / "orders.parquet")
    finally:
        room.clear(target)
