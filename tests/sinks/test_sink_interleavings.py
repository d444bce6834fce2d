"""Law 3 for sinks: whatever two drivers do, the rows of the table are exactly those of the commits that won."""

from __future__ import annotations

import tempfile
import uuid
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.depth import deep

from tidegauge.errors.sinks import TableUpperMismatch
from tidegauge.sinks import DeltaSink, IcebergSink, OutputId, ParquetSink
from tidegauge.sinks.layout.transforms import bucket

SCHEMA = pa.schema([("user", pa.string()), ("_epoch", pa.int64())])
OUTPUT = OutputId("shop", "orders", "a" * 32)
SINKS: dict[str, Any] = {
    "delta": DeltaSink,
    "delta by key": partial(DeltaSink, envelope="upsert", key="user"),
    "iceberg by key, parted": lambda path: IcebergSink(
        "shop.users", path, envelope="upsert", key="user", partition_by=bucket(2, "user")
    ),
    "parquet": ParquetSink,
}

ACTION = st.one_of(
    st.tuples(st.just("stage"), st.integers(0, 1), st.integers(0, 3)),
    st.tuples(st.just("commit"), st.integers(0, 1), st.integers(1, 3)),
    st.tuples(st.just("reopen"), st.integers(0, 1), st.just(0)),
    st.tuples(st.just("discard"), st.integers(0, 1), st.just(0)),
    st.tuples(st.just("abandon"), st.integers(0, 1), st.just(0)),
)


class Driver:
    """A driver as it behaves: it stages for the epochs that it believes are next, and commits them."""

    def __init__(self, sink: Any) -> None:
        self.sink = sink
        self.table = sink.open(OUTPUT)
        self.staged: list[Any] = []
        self.rows: list[tuple[str, int]] = []

    def stage(self, offset: int, lower: int) -> None:
        user = uuid.uuid4().hex
        stager = self.sink.stage(SCHEMA, job=uuid.uuid4().hex, task=0)
        stager.write(pa.RecordBatch.from_pydict({"user": [user], "_epoch": [lower + offset]}, schema=SCHEMA))
        self.staged += stager.close()
        self.rows.append((user, lower + offset))

    def forget(self) -> None:
        self.staged, self.rows = [], []


@pytest.mark.parametrize("kind", sorted(SINKS))
@deep(60)
@given(actions=st.lists(ACTION, max_size=25))
def test_rows_are_exactly_those_of_the_commits_that_won(kind: str, actions: list[tuple[str, int, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        sink = SINKS[kind](f"{folder}/t")
        drivers = [Driver(sink), Driver(sink)]
        upper = 0
        won: list[tuple[str, int]] = []
        for action, who, number in actions:
            driver = drivers[who]
            believed = driver.table.upper
            if action == "stage":
                driver.stage(number, believed)
            elif action == "reopen":
                driver.table = sink.open(OUTPUT)
                driver.forget()
                assert driver.table.upper == upper
            elif action == "discard":
                driver.table.discard(driver.staged)
                driver.forget()
            elif action == "abandon":
                driver.forget()
            else:
                span = range(believed, max([believed + number, *(epoch + 1 for _, epoch in driver.rows)]))
                current = all(epoch in span for _, epoch in driver.rows)
                if not current:  # staged for epochs that the table got from the other one
                    driver.forget()
                try:
                    driver.table.commit(span.start, span.stop, SCHEMA, driver.staged, write=uuid.uuid4().hex)
                except TableUpperMismatch:
                    assert believed != upper
                else:
                    assert believed == upper
                    upper, won = span.stop, won + driver.rows
                    driver.forget()
        table = sink.open(OUTPUT)
        assert table.upper == upper
        found = [pq.read_table(uri, schema=SCHEMA) for uri in table.uris(table.files())]
        held = [(row["user"], row["_epoch"]) for part in found for row in part.to_pylist()]
        assert sorted(held) == sorted(won)
