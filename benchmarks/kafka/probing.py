"""A probe of a topic of 1,000 partitions of which 10 have moved, and the minting of what it found: one tick."""

from __future__ import annotations

import time
from contextlib import closing
from datetime import UTC, datetime
from typing import Final

import tidegauge as tg
from benchmarks.data import COLUMNS
from benchmarks.figures import Figure, Goal
from benchmarks.kafka.topics import producer
from benchmarks.room import Room
from tidegauge.remap.fromtime.partitioned import PARTITIONS
from tidegauge.remap.mint import checked_observation, mint
from tidegauge.remap.store import LeaseHolder, SourceSpec, Store
from tidegauge.remap.timeline import Timeline
from tidegauge.testing import Endpoint

__all__ = ["measure"]

_MOVING: Final = 10


def measure(room: Room, broker: Endpoint) -> list[Figure]:
    """Measure some ticks; what they find is produced between them."""
    partitions = room.size(1000, 50)
    topic = broker.create_topic("probed", partitions=partitions)
    source = tg.KafkaSource(broker.servers, topic=topic, format=tg.Json(COLUMNS)).placed("bench", "probed")
    made = producer(broker.servers, **{"linger.ms": 0})
    folder = room.fresh("probed")
    folder.mkdir()
    env = tg.Env()
    probing: list[float] = []
    minting: list[float] = []
    with closing(Store.open(f"sqlite:///{folder}/store.db", env=env)) as store:
        lease = store.acquire("bench", holder=LeaseHolder.current(env))
        store.register(lease, sources={"probed": SourceSpec(dict(source.describe()))}, outputs={})
        timeline = Timeline({"probed": store.load("bench").sources["probed"].table})
        for turn in range(room.size(25, 5)):
            for i in range(_MOVING if turn else 0):
                made.produce(topic, b"{}", partition=(turn * 37 + i * 101) % partitions)
            made.flush()
            begun, bound = time.perf_counter(), timeline.bound("probed")
            observed = checked_observation("probed", PARTITIONS, bound, source.probe(bound, now=datetime.now(UTC)))
            asked = time.perf_counter()
            states = {"probed": bound.state} if bound.state else {}
            proposals = mint({"probed": bound.frontier}, {"probed": observed}, states=states)
            store.append(lease, expected=timeline.upper, at=observed.at, proposals=proposals)
            timeline.append(timeline.upper, proposals, at=observed.at)
            minting.append(1e3 * (time.perf_counter() - asked))
            probing.append(1e3 * (asked - begun))
            moved = {*timeline.bound("probed").frontier.since(bound.frontier)}
            if len(moved) != (_MOVING if turn else 0):
                raise RuntimeError(f"{len(moved)} partitions moved where {_MOVING} had records")
    ticks = tuple(a + b for a, b in zip(probing[1:], minting[1:], strict=True))
    what = f"{partitions:,} partitions, {_MOVING} of them changed"
    return [
        Figure(f"probe and mint, {what}", "ms", ticks, goal=Goal("ours", "<=", 100.0)),
        Figure("of which the probe", "ms", tuple(probing[1:])),
        Figure("of which minting", "ms", tuple(minting[1:])),
    ]
