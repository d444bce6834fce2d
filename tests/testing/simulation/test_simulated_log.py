"""A log in memory, as a source: what it has beside Kafka's own rules, to which the parity test holds it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.kafka import BrokerUnreachable
from tidegauge.remap.binding import Bound, Slice
from tidegauge.sources.protocol import Source
from tidegauge.testing.simulation.upstream import POINTS, PartitionedLog, SimulatedLog

NOW = datetime(2026, 11, 23, tzinfo=UTC)
P = "orders-0"


def rows(*numbers: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(numbers, pa.int64())})


def read(source: SimulatedLog, lower: int, upper: int) -> list[int]:
    bound = Bound(schema=source.schema, details={P: {"topic_id": "", "start": 0}})
    splits: list[Any] = source.plan([Slice("orders", 0, P, lower, upper)], bound)
    return [n for split in splits for batch in source.read(split, print) for n in batch["n"].to_pylist()]


def call(source: SimulatedLog, name: str) -> None:
    """Make the call of a name."""
    log = source.log
    bound = Bound(schema=source.schema, details={P: {"topic_id": "", "start": 0}})
    slices = [Slice("orders", 0, P, 0, log.end(P))]
    calls: dict[str, Any] = {
        "probe": lambda: source.probe(Bound(), now=NOW),
        "lost": lambda: source.lost(slices, bound),
        "plan": lambda: source.plan(slices, bound),
        "read": lambda: read(source, 0, log.end(P)),
        "confirm": lambda: source.confirm(bound),
        "acknowledge": lambda: source.acknowledge(source.probe(Bound(), now=NOW).upper),
    }
    calls[name]()


def test_it_is_a_source() -> None:
    assert isinstance(SimulatedLog(PartitionedLog({"orders": 1}), columns="n long"), Source)


@pytest.mark.parametrize(("name", "done"), list(zip(POINTS[:-1:2], POINTS[1::2], strict=True)))
def test_each_call_meets_the_world_before_it_does_anything_and_before_it_answers(name: str, done: str) -> None:
    log = PartitionedLog({"orders": 1})
    log.append(P, rows(1))

    def meet(said: str) -> None:
        met.append(said)
        if said == at:
            raise TimeoutError(said)

    source = SimulatedLog(log, columns="n long", on_data_loss="gap", meet=meet)
    for at in (name, done):
        met: list[str] = []
        with pytest.raises(TimeoutError):
            call(source, name)
        assert met[-1] == at
        committed = log.groups.get("tidegauge", {})
        assert bool(committed) == (at == "acknowledged")  # a lost answer takes nothing back


def test_nobody_answers_while_it_is_away_and_it_has_what_was_written_meanwhile() -> None:
    log = PartitionedLog({"orders": 1})
    source = SimulatedLog(log, columns="n long")
    log.away = True
    log.append(P, rows(1, 2))
    for name in ("probe", "plan", "confirm", "acknowledge"):
        with pytest.raises(BrokerUnreachable):
            call(source, name)
    log.away = False
    assert read(source, 0, 2) == [1, 2]


def test_what_is_asked_of_a_place_that_is_not_there_is_refused() -> None:
    log = PartitionedLog({"orders": 1})
    for wrong in (
        lambda: log.append("orders-1", rows(1)),
        lambda: log.grow("clicks", 2),
        lambda: log.commit(1),
        lambda: log.create("orders"),
        lambda: log.append(P, rows(1), keys=[]),
        lambda: log.append(P, pa.record_batch({"_op": ["upsert"]})),
    ):
        with pytest.raises(InvalidArgument):
            wrong()
    log.append(P, rows(1))
    with pytest.raises(InvalidArgument, match="as the log"):
        read(SimulatedLog(log, columns="other string"), 0, 1)


@given(st.lists(st.integers(0, 4), min_size=1), st.data())
def test_a_slice_has_its_rows_however_the_log_was_appended_to_and_the_slice_is_cut(
    sizes: list[int], data: st.DataObject
) -> None:
    log = PartitionedLog({"orders": 1})
    written: list[int] = []
    for size in sizes:
        log.append(P, rows(*range(len(written), len(written) + size)))
        written += range(len(written), len(written) + size)
    lower = data.draw(st.integers(0, len(written)))
    upper = data.draw(st.integers(lower, len(written)))
    source = SimulatedLog(log, columns="n long", split_records=data.draw(st.integers(1, 5)))
    assert read(source, lower, upper) == written[lower:upper]
    assert log.rows(P, lower, upper).num_rows == upper - lower


def test_a_range_longer_than_a_batch_is_read_in_batches() -> None:
    log = PartitionedLog({"orders": 1})
    for first in (0, 7_000, 14_000):
        log.append(P, rows(*range(first, first + 7_000)))
    source = SimulatedLog(log, columns="n long")
    assert read(source, 1, 20_999) == [*range(1, 20_999)]
    bound = Bound(schema=source.schema, details={P: {"topic_id": "", "start": 0}})
    split: Any
    [split] = source.plan([Slice("orders", 0, P, 0, 21_000)], bound)
    assert [batch.num_rows for batch in source.read(split, print)] == [10_000, 10_000, 1_000]
