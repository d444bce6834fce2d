"""The fixed cost of an epoch: ten records come into one partition of four; how long until the table holds them?

As `benchmarks.epoch` has it: the next ten come when the last are in every table, so what either side does after that
counts towards the next epoch. What it takes to produce them, with the broker's word, counts on both sides.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING

from benchmarks.data import lines
from benchmarks.epoch import PHASES, ROWS, Phases, our_epochs, their_batches
from benchmarks.figures import Figure, Goal
from benchmarks.flows import TICK, flow_of
from benchmarks.kafka.sides import session_with_connector, source, stream
from benchmarks.kafka.topics import producer
from benchmarks.room import Room
from tidegauge.testing import Endpoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["measure", "our_turn"]

_NUMBERS = count()


def _bringing(broker: Endpoint) -> tuple[str, Callable[[int], None]]:
    """Make a topic that has the rows of the first epoch; return it and what brings those of the others."""
    topic = broker.create_topic(f"epochs-{next(_NUMBERS)}", partitions=4)
    # It waits for no time but for `flush`: so the ten go in one request, and no tick comes between them.
    made = producer(broker.servers, **{"linger.ms": 1000})

    def produce(number: int) -> None:
        values = lines(number * ROWS, ROWS).splitlines()
        made.produce_batch(topic, [{"value": value} for value in values], number % 4)
        if made.flush(30.0):
            raise RuntimeError("the broker did not take ten records in 30 s")

    produce(0)
    return topic, lambda number: produce(number) if number else None


def our_turn(room: Room, session: SparkSession, broker: Endpoint, seen: Phases, *, outputs: int = 1) -> list[float]:
    """Return the milliseconds that epochs of our flow with so many outputs take."""
    (topic, bring), target = _bringing(broker), room.fresh("ours")
    target.mkdir()
    made = flow_of(source(broker.servers, topic), target, outputs=outputs, tick=TICK)
    return our_epochs(room, session, made, bring, seen=seen)


def _theirs(room: Room, session: SparkSession, broker: Endpoint) -> list[float]:
    topic, bring = _bringing(broker)
    return their_batches(room, lambda: stream(session, broker.servers, topic), bring, outputs=1)


def measure(room: Room, broker: Endpoint) -> list[Figure]:
    """Measure epochs of one output beside micro-batches of one query, in turns."""
    ours, theirs, seen = [], [], Phases()
    with session_with_connector() as session:
        for turn in range(room.size(4, 2)):
            mine = our_turn(room, session, broker, seen if turn else Phases())
            other = _theirs(room, session, broker)
            if turn:  # the first of each in a session pays for code that is compiled once
                ours.append(mine)
                theirs.append(other)
            room.say(f"turn {turn}")
    medians = seen.medians()
    return [
        Figure(
            f"an epoch of {ROWS} records, 1 output, Delta", "ms",
            tuple(map(statistics.median, ours)), tuple(map(statistics.median, theirs)),
            "Structured Streaming to Parquet", Goal("ratio", "<=", 0.12),
            details={"phases_ms": medians, "epochs_ms": ours, "peer_epochs_ms": theirs},
        ),
        *(Figure(f"of which {phase}", "ms", (medians[phase],)) for phase in PHASES),
    ]  # fmt: skip
