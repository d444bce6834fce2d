"""Where outputs begin, in a store of either kind."""

from __future__ import annotations

import pytest
from tests.remap.store.raw import sql

from tidegauge.env import Env
from tidegauge.errors.store import CorruptStore
from tidegauge.remap.binding import Proposal
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.rebuilding import Way
from tidegauge.remap.start import StartRecord
from tidegauge.remap.store import Lease, LeaseHolder, OutputSpec, Rebuilt, SourceSpec, Store

LATE = OutputSpec("orders", {"kind": "parquet", "path": "/lake/late"}, "/lake/late")
NOW = StartRecord('"now"', 4)


@pytest.fixture
def lease(store: Store, env: Env) -> Lease:
    """A flow with four epochs."""
    lease = store.acquire("shop", holder=LeaseHolder.current(env))
    store.register(lease, sources={"orders": SourceSpec({})}, outputs={"late": LATE})
    for epoch in range(4):
        proposals = {"orders": Proposal(frontier=Frontier({"p0": epoch + 1}))}
        store.append(lease, expected=epoch, at=env.now(), proposals=proposals)
    return lease


def start(store: Store) -> StartRecord | None:
    return store.load("shop").outputs["late"].start


def test_a_start_stays_until_it_is_replaced_or_forgotten(store: Store, lease: Lease) -> None:
    store.record_start(lease, "late", NOW)
    store.record_start(lease, "late", NOW)
    store.register(lease, sources={}, outputs={"late": LATE})
    assert start(store) == NOW
    store.record_start(lease, "late", StartRecord("2", 2))
    assert start(store) == StartRecord("2", 2)
    store.record_start(lease, "late", None)
    assert start(store) is None


def test_an_output_that_writes_elsewhere_has_none(store: Store, lease: Lease) -> None:
    store.record_start(lease, "late", NOW)
    there = OutputSpec("orders", {"kind": "parquet", "path": "/lake/there"}, "/lake/there")
    store.register(lease, sources={}, outputs={"late": there})
    assert start(store) is None


@pytest.mark.parametrize(
    ("known", "told", "kept"),
    [
        (NOW, StartRecord("3", 3), StartRecord("3", 3)),
        (None, NOW, NOW),
        (NOW, None, None),
        (StartRecord("2", 2), None, StartRecord("2", 2)),
    ],
    ids=["the table is right", "the store knew nothing", "it is not bound any more", "the table is empty"],
)
def test_a_rebuilt_timeline_has_the_starts_of_the_tables(
    store: Store, lease: Lease, known: StartRecord | None, told: StartRecord | None, kept: StartRecord | None
) -> None:
    store.record_start(lease, "late", known)
    rebuilt = Rebuilt(
        way=Way(3, ()),
        incarnation=lease.incarnation,
        upper=3,
        published=3,
        held={},
        gaps={},
        starts={} if told is None else {"late": told},
    )
    store.restore(lease, rebuilt)
    assert start(store) == kept


def test_a_damaged_start_is_said(store: Store, lease: Lease, url: str) -> None:
    store.record_start(lease, "late", NOW)
    sql(url, "UPDATE starts SET epoch = -1")
    with pytest.raises(CorruptStore, match="-1 is no epoch"):
        store.load("shop")
