"""What a polled source has to know at its next poll is kept in the binding, and stays."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.remap.store.conftest import Clock
from tests.remap.store.raw import sql

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.flow import UnknownName
from tidegauge.errors.store import ClockChanged, EpochBelowSince, EpochNotMinted, WatermarkRegressed
from tidegauge.remap.binding import Proposal
from tidegauge.remap.fromtime import POLLS, SEQUENCE, SourceState
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.store import Lease, SourceSpec, Store

Poll = Callable[..., int]


def state(value: Any, *, day: int | None = None) -> SourceState:
    watermark = None if day is None else datetime(2026, 11, day, tzinfo=UTC)
    return SourceState(kind="http/etag", source_id="https://example.org", value=value, watermark=watermark)


@pytest.fixture
def poll(store: Store, lease: Lease, clock: Clock) -> Poll:
    """Binds the next epoch of `orders` at so many polls, with a state."""

    def append(expected: int, polls: int, kept: SourceState | None) -> int:
        proposal = Proposal(frontier=Frontier({POLLS: polls}), state=kept)
        return store.append(lease, expected=expected, at=clock(), proposals={"orders": proposal})

    return append


def test_it_is_kept_with_the_binding_also_of_an_epoch_that_holds_no_data(
    store: Store, poll: Poll, opened: Callable[[], Store]
) -> None:
    poll(0, 1, state("A"))
    poll(1, 1, state("B"))  # nothing new upstream, and yet another ETag
    poll(2, 2, state("B"))
    poll(3, 3, None)
    for looked in (store, opened()):
        found = looked.load("shop").sources["orders"]
        assert found.state == state("B")
        assert found.table.upper == 4
        assert found.table.slices(1, 2) == []
        assert [looked.state_at("shop", "orders", epoch) for epoch in range(4)] == [
            *(state("A"), state("B"), state("B"), state("B")),
        ]
        assert looked.state_at("shop", "clicks", 3) is None


def test_only_changes_are_written(url: str, store: Store, poll: Poll) -> None:
    poll(0, 1, state("A"))
    poll(1, 2, state("A"))
    assert [store.state_at("shop", "orders", epoch) for epoch in (0, 1)] == [state("A"), state("A")]
    assert _written(url) == [0]
    poll(2, 3, state("B"))
    assert _written(url) == [0, 2]


def _written(url: str) -> list[int]:
    return [epoch for (epoch,) in sql(url, "SELECT epoch FROM source_states ORDER BY epoch")]


def test_the_next_driver_knows_the_newest_one(
    url: str, lease: Lease, poll: Poll, clock: Clock, opened: Callable[[], Store]
) -> None:
    poll(0, 1, state("A", day=20))
    other = opened()
    proposal = Proposal(frontier=Frontier({POLLS: 2}), state=state("A", day=20))
    other.append(lease, expected=1, at=clock(), proposals={"orders": proposal})
    assert _written(url) == [0]
    back = Proposal(frontier=Frontier({POLLS: 3}), state=state("A", day=19))
    third = opened()
    with pytest.raises(WatermarkRegressed):
        third.append(lease, expected=2, at=clock(), proposals={"orders": back})


@pytest.mark.parametrize("after", [19, None])
def test_a_watermark_never_goes_back_and_nothing_is_written_then(store: Store, poll: Poll, after: int | None) -> None:
    poll(0, 1, state("A", day=20))
    with pytest.raises(WatermarkRegressed, match="'orders'"):
        poll(1, 2, state("B", day=after))
    found = store.load("shop")
    assert (found.flow.upper, found.sources["orders"].state) == (1, state("A", day=20))
    assert found.sources["orders"].table.frontier == Frontier({POLLS: 1})
    poll(1, 2, state("B", day=20))
    poll(2, 3, state("C", day=21))
    assert store.load("shop").sources["orders"].state == state("C", day=21)


@pytest.mark.parametrize("since", [0, 1, 2, 3])
def test_of_the_states_up_to_since_the_last_one_stays(
    url: str, store: Store, lease: Lease, poll: Poll, clock: Clock, since: int
) -> None:
    for epoch, kept in enumerate(("A", "B", "C", "D")):
        poll(epoch, epoch + 1, None if kept == "C" else state(kept))
    store.publish(lease, expected=0, upper=4, at=clock())
    before = [store.state_at("shop", "orders", epoch) for epoch in range(since, 4)]
    store.advance_since(lease, since)
    assert [store.state_at("shop", "orders", epoch) for epoch in range(since, 4)] == before
    assert len(_written(url)) == {0: 3, 1: 2, 2: 2, 3: 1}[since]
    with pytest.raises(EpochBelowSince):
        store.state_at("shop", "orders", since - 1)


def test_a_new_incarnation_begins_without_a_state(store: Store, lease: Lease, poll: Poll, clock: Clock) -> None:
    poll(0, 1, state("A", day=20))
    store.begin_incarnation(lease, "orders", at=clock(), reason="recreated")
    assert store.load("shop").sources["orders"].state is None
    poll(1, 1, None)
    poll(2, 2, state("Z", day=1))  # its watermark begins anew too
    assert [store.state_at("shop", "orders", epoch) for epoch in range(3)] == [
        *(state("A", day=20), None, state("Z", day=1)),
    ]
    store.publish(lease, expected=0, upper=3, at=clock())
    store.advance_since(lease, 1)
    assert store.state_at("shop", "orders", 1) is None
    assert store.load("shop").sources["orders"].state == state("Z", day=1)


def test_what_was_never_minted_and_what_never_was_have_no_state(store: Store, poll: Poll) -> None:
    poll(0, 1, state("A"))
    with pytest.raises(EpochNotMinted):
        store.state_at("shop", "orders", 1)
    with pytest.raises(UnknownName):
        store.state_at("shop", "oders", 0)


def test_a_state_that_was_edited_by_hand_is_said_to_be_damaged(url: str, store: Store, poll: Poll) -> None:
    poll(0, 1, state("A"))
    sql(url, "UPDATE source_states SET state = '{}'")
    with pytest.raises(TidegaugeError, match="TG-02"):
        store.load("shop")


def test_a_clock_of_another_kind_under_an_old_name_is_refused(url: str, store: Store, lease: Lease) -> None:
    """What an older version registered has none yet, and gets the one that it is declared with."""
    declared = {"polls": SourceSpec({"url": "a"}, clock=SEQUENCE.kind), "rows": SourceSpec({})}
    store.register(lease, sources=declared, outputs={})
    before = store.load("shop").sources["polls"].config
    changed = {"rows": SourceSpec({"b": 1}), "polls": SourceSpec({"url": "b"})}
    with pytest.raises(ClockChanged, match="'polls' was started with the clock 'sequence'"):
        store.register(lease, sources=changed, outputs={})
    assert store.load("shop").sources["polls"].config == before
    assert store.load("shop").sources["rows"].config == {}
    sql(url, "UPDATE sources SET clock = NULL")
    store.register(lease, sources={"polls": SourceSpec({}, clock="lsn")}, outputs={})
    with pytest.raises(ClockChanged, match="'lsn'"):
        store.register(lease, sources={"polls": SourceSpec({})}, outputs={})
