"""A streaming join: two streams of `(key, value)` meet by key, and a pair comes as soon as both of it are there.

Either stream may be ahead of the other. A pair belongs to the least time at or beyond both of its records: from that
time on both are in. So the result is the same in whatever sequence the batches come, for every order with such times.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from operator import itemgetter
from typing import Any, TypeAlias

from tidegauge.dataflow import OperatorContext, OperatorInput, OperatorOutput, Stream, Worker, execute, records
from tidegauge.dataflow.order import join as least_beyond

Keyed: TypeAlias = list[tuple[Any, Any]]
"""Records of a key and a value."""
Seen: TypeAlias = defaultdict[Any, list[tuple[Any, Any]]]
"""Of each key: the values so far, each with its time."""

LEFT: list[Keyed] = [[(1, "buoy"), (2, "pier")], [(1, "lock"), (3, "quay")]]
RIGHT: list[Keyed] = [[(1, 7.1), (3, 5.4)], [(2, 6.9)]]


def join(left: Stream[Keyed], right: Stream[Keyed]) -> Stream[list[tuple[Any, Any, Any]]]:
    """Return `(key, left value, right value)` for each two records of one key."""
    by_key = records.route(itemgetter(0))
    return left.exchange(by_key).binary(right.exchange(by_key), "join", match, notify=False)


def match(context: OperatorContext) -> Callable[[OperatorInput, OperatorInput, OperatorOutput], None]:
    """Keep what has come on either side; look up what comes on the other."""
    context.capabilities[0].drop()
    lefts: Seen = defaultdict(list)
    rights: Seen = defaultdict(list)

    def meet(arriving: OperatorInput, output: OperatorOutput, mine: Seen, others: Seen, *, swap: bool) -> None:
        for message, batch in arriving.drain():
            pairs: defaultdict[Any, list[Any]] = defaultdict(list)
            for key, value in batch:
                mine[key].append((value, message.time))
                for other, time in others.get(key, ()):
                    pair = (key, other, value) if swap else (key, value, other)
                    pairs[least_beyond(context.order, message.time, time)].append(pair)
            for time, found in pairs.items():
                held = message.delayed(time)
                output.give(held, found)
                held.drop()

    def step(left: OperatorInput, right: OperatorInput, output: OperatorOutput) -> None:
        meet(left, output, lefts, rights, swap=False)
        meet(right, output, rights, lefts, swap=True)

    return step


def main() -> None:
    """Join two rounds of places and heights on two workers."""

    def build(worker: Worker) -> list[tuple[Any, ...]]:
        joined: list[tuple[Any, ...]] = []
        with worker.dataflow("join") as scope:
            sides = [scope.input(name) for name in ("left", "right")]
            join(sides[0][1], sides[1][1]).inspect(lambda s, batch: joined.extend((*s, *row) for row in batch))
        for (feed, _), rounds in zip(sides, (LEFT, RIGHT), strict=True):
            for time, batch in enumerate(rounds):
                feed.advance_to(time)
                if worker.index == time:
                    feed.send(batch)
            feed.close()
        return joined

    for time, key, place, height in sorted(row for joined in execute(build, peers=2) for row in joined):
        print(f"time {time}: {key} {place} {height}")


if __name__ == "__main__":
    main()
