"""One, three and ten outputs of a topic, beside as many queries, and beside one `foreachBatch` with as many tables.

The first output has all rows, the others have filters with selections in plain SQL. Then the fixed cost of an epoch
of ten records, for as many outputs: what does a further output cost?
"""

from __future__ import annotations

import statistics
from functools import partial
from typing import Final

from benchmarks.epoch import ROWS, Phases
from benchmarks.figures import Figure, Goal
from benchmarks.kafka.epoch import our_turn
from benchmarks.kafka.sides import session_with_connector, source, stream
from benchmarks.kafka.throughput import PARTITIONS
from benchmarks.kafka.topics import filled
from benchmarks.room import Room
from benchmarks.sides import Account, for_each_batch, ours, queries
from tidegauge.testing import Endpoint, KafkaBroker

__all__ = ["measure"]

_OUTPUTS: Final = (1, 3, 10)
_GOALS: Final = {("queries", 3): 7.0, ("foreachBatch", 3): 4.5, ("queries", 10): 12.0, ("foreachBatch", 10): 6.0}


def measure(room: Room) -> list[Figure]:
    """Measure both on a broker of its own."""
    with KafkaBroker() as broker:
        return _throughput(room, broker.endpoint) + _fixed(room, broker.endpoint)


def _throughput(room: Room, broker: Endpoint) -> list[Figure]:
    sizes = room.size(2_000_000, 20_000), room.size(200_000, 10_000)
    topic, few, rows = filled(broker, *sizes, partitions=PARTITIONS)
    account = Account()
    with session_with_connector() as session:
        for over, seen, count in ((few, Account(), 1), (topic, account, room.size(2, 1))):
            mine, read = source(broker.servers, over), partial(stream, session, broker.servers, over)
            for turn in range(count):
                for outputs in _OUTPUTS:
                    ours(room, session, mine, seen, outputs=outputs)
                    queries(room, session, read, seen, outputs=outputs)
                    if outputs > 1:
                        for_each_batch(room, session, read, seen, outputs=outputs)
                room.say(f"turn {turn + 1} over {over}")
    account.agree()
    rates = account.rates(rows)
    return [
        Figure(
            f"JSON of {rows:,} messages to Delta, outputs: {outputs}", "rows/s",
            rates[f"ours {outputs}"], rates[f"{kind} {outputs}"], f"Structured Streaming, {kind}: {outputs}",
            Goal("ratio", ">=", goal) if (goal := _GOALS.get((kind, outputs))) is not None else None,
        )
        for outputs in _OUTPUTS for kind in ("queries", "foreachBatch") if f"{kind} {outputs}" in rates
    ]  # fmt: skip


def _fixed(room: Room, broker: Endpoint) -> list[Figure]:
    taken: dict[int, list[float]] = {outputs: [] for outputs in _OUTPUTS}
    with session_with_connector() as session:
        for turn in range(room.size(4, 2)):
            for outputs in _OUTPUTS:
                found = statistics.median(our_turn(room, session, broker, Phases(), outputs=outputs))
                if turn:  # the first of each pays for code that is compiled once
                    taken[outputs].append(found)
    few, *_, many = _OUTPUTS
    further = tuple((b - a) / (many - few) for a, b in zip(taken[few], taken[many], strict=True))
    return [
        *(Figure(f"an epoch of {ROWS} records, outputs: {n}", "ms", tuple(taken[n])) for n in _OUTPUTS),
        Figure("of which a further output", "ms", further, goal=Goal("ours", "<=", 15.0)),
    ]
