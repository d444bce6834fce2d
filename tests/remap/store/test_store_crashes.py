"""A crash before or after any durable effect of the store: nothing by halves, and trying again is harmless."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from tests.remap.store.raw import dump

from tidegauge.env import Effect, Env
from tidegauge.errors.flow import InvalidArgument, NameTaken
from tidegauge.remap.binding import Proposal
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.store import Gap, LeaseHolder, OutputSpec, SourceSpec, Store

NOW = datetime(2026, 11, 20, 17, tzinfo=UTC)
WRITES: list[Effect] = [
    "acquire lease",
    "register",
    "record schema",
    "append bindings",
    "publish",
    "advance since",
    "record failure",
    "record output failure",
    "begin incarnation",
    "record gap",
    "release lease",
]
ME = replace(LeaseHolder.current(Env()), run="a" * 32)
ID = pa.schema([("id", pa.int64())])


class Crash(Exception):
    """The process dies here."""


def drive(url: str, env: Env) -> None:
    """A driver's life: take the lease, look at what is durable, do what is left to do, twice over."""
    store = Store.open(url, env=env)
    try:
        lease = store.acquire("shop", holder=ME)
        known = {name: SourceSpec({}) for name in ("orders", "clicks")}
        store.register(lease, sources=known, outputs={"raw": OutputSpec("orders", {})})
        store.record_schema(lease, "orders", ID)
        flow = store.load("shop").flow
        for epoch in range(flow.upper, 3):
            bound = Proposal(frontier=Frontier({"p0": epoch + 1, "p1": 7}), details={"p0": {"seen": epoch}})
            store.append(lease, expected=epoch, at=NOW, proposals={"orders": bound})
        if flow.published < 3:
            store.publish(lease, expected=flow.published, upper=3, at=NOW)
        store.advance_since(lease, 1)
        if not store.load("shop").sources["clicks"].incarnations:
            store.begin_incarnation(lease, "clicks", at=NOW, reason="made anew")
        store.record_gap(lease, Gap("orders", 1, "p0", 0, 1, NOW, "TG-0554", "gone"))
        store.record_failure(lease, "orders", 3, NameTaken(flow="shop", kind="source", name="orders"))
        store.record_output_failure(lease, "raw", 3, NameTaken(flow="shop", kind="output", name="raw"))
        lease.release()
    finally:
        store.close()


def world(point: Callable[[str], None] = lambda _: None) -> Env:
    return Env(now=lambda: NOW, unique=lambda: "b" * 32, point=point)


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What is in a store after a life that nothing disturbed. It is the same in every kind of store."""
    url = f"sqlite:///{tmp_path_factory.mktemp('calm')}/store.db"
    drive(url, world())
    return dump(url)


@pytest.mark.parametrize("effect", WRITES)
@pytest.mark.parametrize("side", ["before", "after"])
def test_after_a_crash_the_next_run_ends_where_an_undisturbed_one_does(
    url: str, calm: dict[str, Any], side: str, effect: str
) -> None:
    struck = 0

    def strike(point: str) -> None:
        nonlocal struck
        if point == f"{side} {effect}":
            struck += 1
            raise Crash(point)

    for _ in range(3):
        with suppress(Crash):
            drive(url, world(strike))
    drive(url, world())
    assert struck > 0
    assert dump(url) == calm


@pytest.mark.parametrize("effect", WRITES)
def test_an_effect_is_there_after_it_and_not_before_it(url: str, effect: str) -> None:
    seen: dict[str, object] = {}

    def look(point: str) -> None:
        if point.endswith(effect):
            seen.setdefault(point.partition(" ")[0], dump(url))

    drive(url, world(look))
    assert seen["before"] != seen["after"]


def test_a_transaction_that_fails_half_way_writes_nothing(url: str) -> None:
    store = Store.open(url, env=world())
    lease = store.acquire("shop", holder=ME)
    store.register(lease, sources={"first": SourceSpec({}), "second": SourceSpec({})}, outputs={})
    before = dump(url)
    good = Proposal(frontier=Frontier({"p0": 1}))
    bad = Proposal(frontier=Frontier({"p0": 1, "p1": 2**63}))
    with pytest.raises(InvalidArgument):
        store.append(lease, expected=0, at=NOW, proposals={"first": good, "second": bad})
    assert dump(url) == before
    assert store.append(lease, expected=0, at=NOW, proposals={"first": good, "second": good}) == 0
    store.close()
