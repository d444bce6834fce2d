"""How old a record is when readers see it: 1,000 records a second, a tick of 200 ms, into Delta.

A process of its own produces, evenly, and writes the time into each record; an epoch is visible when it is published,
after the table's commit. The records of a first second are waited for and do not count: they bring up the session's
workers.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from bisect import bisect_right
from typing import Final

import numpy as np

import tidegauge as tg
from benchmarks.figures import Figure, Goal
from benchmarks.flows import Driver, Recording
from benchmarks.kafka.sides import session_with_connector
from benchmarks.kafka.topics import producer
from benchmarks.room import Room
from tidegauge.engine.spark.engine import SparkEngine
from tidegauge.testing import Endpoint

__all__ = ["measure", "pace"]

_TICK: Final = 0.2
_RATE: Final = 1000
_BEAT: Final = 0.01
_PATIENCE: Final = 60.0


def pace(servers: str, topic: str, seconds: float) -> int:
    """Produce records that have the time in them, a few each hundredth of a second; return how many."""
    made = producer(servers, **{"linger.ms": 0})
    begun = time.time()
    done = 0
    while (now := time.time()) < begun + seconds:
        for _ in range(round((now - begun) * _RATE) - done):
            value = json.dumps({"id": done, "produced": time.time()}).encode()
            made.produce(topic, value, partition=done % 4)
            done += 1
        made.poll(0)
        time.sleep(_BEAT)
    if made.flush(30.0):
        raise RuntimeError("the broker did not take all records")
    return done


def _wait_for(rows: int, engine: Recording) -> None:
    """Wait until so many rows are staged; what is staged is committed before the driver stops."""
    over = time.monotonic() + _PATIENCE
    while engine.rows("orders") < rows:
        if time.monotonic() > over:
            raise TimeoutError(f"{engine.rows('orders')} rows of {rows} are staged after {_PATIENCE} s")
        time.sleep(_BEAT)


def measure(room: Room, broker: Endpoint) -> list[Figure]:
    """Measure for half a minute."""
    seconds = room.size(30.0, 8.0)
    topic = broker.create_topic("paced", partitions=4)
    target = room.fresh("paced")
    target.mkdir()
    flow = tg.Dataflow("paced", store=f"sqlite:///{target}/store.db", tick=_TICK)
    orders = tg.KafkaSource(broker.servers, topic=topic, format=tg.Json("id long, produced double"))
    flow.sink("orders", flow.source("orders", orders), tg.DeltaSink(f"{target}/orders"))
    code = "import sys; from benchmarks.kafka.latency import pace; print(pace(*sys.argv[1:3], float(sys.argv[3])))"
    with session_with_connector() as session:
        engine = Recording(SparkEngine(session))
        driver = Driver(flow, engine)
        produced = 0
        for length in (1.0, seconds):
            begun = time.time()
            command = [sys.executable, "-c", code, broker.servers, topic, str(length)]
            produced += int(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
            _wait_for(produced, engine)
        driver.stop()
        engine.close()
    rows = tg.read_arrow(flow, "orders")
    uppers, times = zip(*driver.seen, strict=True)
    visible = np.array([times[bisect_right(uppers, epoch)] for epoch in rows["_epoch"].to_pylist()])
    stamps = rows["produced"].to_numpy()
    ages = (1000 * (visible - stamps))[stamps > begun]
    if len(rows) != produced:
        raise RuntimeError(f"{len(rows)} rows of {produced} records")
    room.clear(target)
    details = {"records": len(rows), "epochs": len(driver.seen), "counted": len(ages)}
    return [
        Figure(
            f"from produce to visible, p{q}", "ms", (float(np.percentile(ages, q)),), goal=Goal("ours", "<=", most),
            details=details,
        )
        for q, most in ((50, 150.0), (99, 400.0))
    ]  # fmt: skip
