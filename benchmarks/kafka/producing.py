"""Rows a second into a topic: orders in JSON from one topic of four partitions into another, decoded and made anew.

Ours runs until it has caught up, theirs with the trigger `availableNow`, on a warm session. Ours shows each epoch as
a whole and each message once; Structured Streaming's Kafka sink may double what it has written when it is restarted,
so ours is measured with that guarantee too (`exactly_once=False`).
"""

from __future__ import annotations

import time
from itertools import count
from typing import TYPE_CHECKING, Final

import tidegauge as tg
from benchmarks.figures import Figure
from benchmarks.kafka.sides import session_with_connector, source, stream
from benchmarks.kafka.topics import fill, orders
from benchmarks.room import Room
from tidegauge.engine.spark.engine import SparkEngine
from tidegauge.kafka import Settings
from tidegauge.kafka.clients import admin
from tidegauge.kafka.cluster import offsets
from tidegauge.testing import Endpoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["measure"]

PARTITIONS: Final = 4
_NUMBERS: Final = count()


def _empty(broker: Endpoint) -> str:
    return broker.create_topic(f"produced-{next(_NUMBERS)}", partitions=PARTITIONS)


def _ours(room: Room, session: SparkSession, broker: Endpoint, topic: str, rows: int, *, exactly_once: bool) -> float:
    """Return the seconds of a run of ours."""
    target = room.fresh("ours")
    target.mkdir()
    flow = tg.Dataflow("producing", store=f"sqlite:///{target}/flow.db")
    read = flow.source("orders", source(broker.servers, topic))
    sink = tg.KafkaSink(
        broker.servers, topic=_empty(broker), exactly_once=exactly_once, staging=str(target / "staging")
    )
    flow.sink("orders", read, sink)
    engine = SparkEngine(session)
    begun = time.perf_counter()
    flow.run("caught-up", engine=engine)
    taken = time.perf_counter() - begun
    engine.close()
    written = sum(output.rows for output in tg.status(flow).outputs)
    if written != rows:
        raise RuntimeError(f"ours wrote {written} messages of {rows}")
    room.clear(target)
    return taken


def _theirs(room: Room, session: SparkSession, broker: Endpoint, topic: str, rows: int) -> float:
    """Return the seconds of a query of theirs."""
    from pyspark.sql import functions as sql

    target, into = room.fresh("theirs"), _empty(broker)
    frame = stream(session, broker.servers, topic)
    writer = frame.select(sql.to_json(sql.struct(*frame.columns)).alias("value")).writeStream.format("kafka")
    writer = writer.option("kafka.bootstrap.servers", broker.servers).option("topic", into)
    begun = time.perf_counter()
    query = writer.option("checkpointLocation", str(target)).trigger(availableNow=True).start()
    query.awaitTermination()
    taken = time.perf_counter() - begun
    with admin(Settings.of(broker.servers)) as client:
        places = [(into, number) for number in range(PARTITIONS)]
        ends = offsets(client, places, "latest", servers=broker.servers, committed=False)
    if sum(ends.values()) != rows:
        raise RuntimeError(f"theirs wrote {sum(ends.values())} messages of {rows}")
    room.clear(target)
    return taken


def measure(room: Room, broker: Endpoint) -> list[Figure]:
    """Measure both guarantees beside theirs, in turns; the first one does not count."""
    topic = broker.create_topic("to-produce", partitions=PARTITIONS)
    rows = fill(broker.servers, topic, orders(room.size(1_000_000, 10_000)), partitions=PARTITIONS)
    seconds: dict[str, list[float]] = {"once": [], "at least once": [], "theirs": []}
    with session_with_connector() as session:
        for turn in range(room.size(4, 2)):
            found = {
                "once": _ours(room, session, broker, topic, rows, exactly_once=True),
                "theirs": _theirs(room, session, broker, topic, rows),
                "at least once": _ours(room, session, broker, topic, rows, exactly_once=False),
            }
            for case, taken in found.items():
                if turn:
                    seconds[case].append(taken)
            room.say(f"turn {turn + 1}")
    rates = {case: tuple(rows / taken for taken in found) for case, found in seconds.items()}
    peer = "Structured Streaming, its Kafka sink, at least once"
    return [
        Figure(
            f"JSON of {rows:,} messages to a topic, {guarantee}", "rows/s", rates[case], rates["theirs"], peer,
            details={"rows": rows, "seconds": seconds[case]},
        )
        for case, guarantee in (("once", "exactly once"), ("at least once", "at least once"))
    ]  # fmt: skip
