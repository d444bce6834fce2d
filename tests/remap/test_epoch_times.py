"""From wall times to epochs: times never go back, although clocks do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.env import Env
from tidegauge.errors.flow import InvalidArgument
from tidegauge.remap.binding import Proposal
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.store import LeaseHolder, SourceSpec, Store
from tidegauge.remap.table import RemapTable
from tidegauge.remap.timeline import Timeline
from tidegauge.remap.times import EpochTimes

ZERO = datetime(1969, 12, 31, 23, 59, 59, 999_997, tzinfo=UTC)
clocks = st.lists(st.integers(0, 20).map(lambda ticks: ZERO + timedelta(microseconds=ticks)), max_size=30)


@given(clocks, st.integers(-1, 21))
def test_x3_the_epoch_at_a_time_is_the_greatest_minted_by_then_whatever_the_clock_did(
    readings: list[datetime], ticks: int
) -> None:
    times = EpochTimes()
    for reading in readings:
        times.append(reading)
    minted = [max(readings[: epoch + 1]) for epoch in range(len(readings))]
    when = ZERO + timedelta(microseconds=ticks)
    assert [times.minted_at(epoch) for epoch in range(times.upper)] == minted
    assert times.at_time(when) == max((e for e, at in enumerate(minted) if at <= when), default=None)


@given(clocks)
def test_times_read_from_the_store_are_those_that_were_told(readings: list[datetime]) -> None:
    told = EpochTimes()
    for reading in readings:
        told.append(reading)
    texts = [told.minted_at(e).strftime("%Y-%m-%dT%H:%M:%S.%fZ") for e in range(told.upper)]
    loaded = EpochTimes.load(texts)
    assert [loaded.minted_at(e) for e in range(loaded.upper)] == [told.minted_at(e) for e in range(told.upper)]


def test_an_instant_is_the_same_in_every_zone_and_one_without_a_zone_is_none() -> None:
    times = EpochTimes()
    times.append(ZERO)
    assert times.at_time(ZERO.astimezone(timezone(timedelta(hours=9)))) == 0
    with pytest.raises(InvalidArgument):
        times.at_time(ZERO.replace(tzinfo=None))
    with pytest.raises(InvalidArgument):
        times.at_time("2026-11-20")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        times.minted_at(1)


def test_the_store_and_the_timeline_agree_when_a_clock_steps_back(tmp_path: Path) -> None:
    env = Env()
    store = Store.open(f"sqlite:///{tmp_path}/store.db", env=env)
    lease = store.acquire("shop", holder=LeaseHolder.current(env))
    store.register(lease, sources={"s": SourceSpec({})}, outputs={})
    told = EpochTimes()
    for epoch, seconds in enumerate((5, 3, 9, -3000, 9)):
        at = ZERO + timedelta(seconds=seconds)
        proposals = {"s": Proposal(frontier=Frontier({"p": epoch + 1}))}
        store.append(lease, expected=epoch, at=at, proposals=proposals)
        told.append(at)
    kept = store.times("shop")
    recorded = [record.minted_at for record in store.epochs("shop")]
    store.close()
    assert [kept.minted_at(e) for e in range(5)] == [told.minted_at(e) for e in range(5)] == recorded
    assert [kept.at_time(ZERO + timedelta(seconds=s)) for s in (4, 5, 8, 9)] == [None, 1, 1, 4]


def test_a_timeline_knows_when_its_epochs_were_minted() -> None:
    timeline = Timeline({"s": RemapTable("s")})
    timeline.append(0, {"s": Proposal(frontier=Frontier({"p": 1}))}, at=ZERO)
    timeline.append(1, {"s": Proposal(frontier=Frontier({"p": 2}))}, at=ZERO - timedelta(days=1))
    assert timeline.at_time(ZERO) == 1
    assert timeline.at_time(ZERO - timedelta(microseconds=1)) is None
