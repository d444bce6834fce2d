"""The token is compared inside every writing transaction: who lost the lease writes nothing, by whatever method."""

from __future__ import annotations

import inspect
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

import pyarrow as pa
import pytest
from tests.remap.store.raw import dump, sql

from tidegauge.env import Env
from tidegauge.errors.flow import NameTaken
from tidegauge.errors.store import LeaseLost
from tidegauge.remap.binding import Proposal
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.history import Missed
from tidegauge.remap.rebuilding import Way
from tidegauge.remap.start import StartRecord
from tidegauge.remap.store import (
    EXPIRY,
    BackfillUnit,
    CodeRecord,
    Following,
    Gap,
    Lease,
    LeaseHolder,
    OutputSpec,
    Rebuilt,
    Replacement,
    SourceSpec,
    Stall,
    Store,
)

WHY = NameTaken(flow="shop", kind="source", name="orders")


class Clock(Protocol):
    """The clock of the fixtures: it stands still until it is moved."""

    def pass_by(self, seconds: float) -> None: ...


def bind(epoch: int) -> Callable[[Store, Lease, Env], object]:
    proposals = {"orders": Proposal(frontier=Frontier({"p0": epoch + 1}))}
    ahead = timedelta(minutes=30)  # so that there is a time to be put right
    return lambda store, lease, env: store.append(lease, expected=epoch, at=env.now() + ahead, proposals=proposals)


def own(store: Store, env: Env) -> None:
    """A flow to follow, which has bound nothing and has lost something."""
    lease = store.acquire("owner", holder=LeaseHolder.current(env))
    store.register(lease, sources={"theirs": SourceSpec({})}, outputs={})
    store.record_gap(lease, Gap("theirs", 0, "p0", 4, 5, env.now(), "TG-0554", "recreated"))
    lease.release()


def follow(store: Store, lease: Lease, _env: Env) -> object:
    following, owner = Following("owner", {"orders": "theirs"}), store.flow("owner")
    assert owner is not None
    return store.follow(lease, following, expected=0, incarnation=owner.incarnation, configs={"orders": {}})


WRITES: list[tuple[str, Callable[[Store, Lease, Env], object]]] = [
    ("register", lambda store, lease, _: store.register(
        lease, sources={"orders": SourceSpec({})}, outputs={"raw": OutputSpec("orders", {})})),
    ("follow", follow),
    ("record_schema", lambda store, lease, _: store.record_schema(lease, "orders", pa.schema([("id", pa.int64())]))),
    ("append", bind(0)),
    ("append", bind(1)),
    ("record_columns", lambda store, lease, _: store.record_columns(
        lease, {"orders": pa.schema([("id", pa.int64()), ("at", pa.date32())])})),
    ("publish", lambda store, lease, env: store.publish(lease, expected=0, upper=2, at=env.now())),
    ("advance_since", lambda store, lease, _: store.advance_since(lease, 1)),
    ("record_failure", lambda store, lease, _: store.record_failure(lease, "orders", 1, WHY)),
    ("clear_failure", lambda store, lease, _: store.clear_failure(lease, "orders")),
    ("record_output_failure", lambda store, lease, _: store.record_output_failure(lease, "raw", 1, WHY)),
    ("clear_output_failure", lambda store, lease, _: store.clear_output_failure(lease, "raw")),
    ("record_held", lambda store, lease, _: store.record_held(lease, {"raw": 1})),
    ("record_told", lambda store, lease, _: store.record_told(lease, "raw", 1)),
    ("bring_back", lambda store, lease, env: store.bring_back(
        lease, {"orders": [Missed(0, "p0", 2, 3, env.now().isoformat(), "TG-0640", "by hand")]})),
    ("record_stalls", lambda store, lease, env: store.record_stalls(
        lease, [Stall("source", "orders", env.now(), WHY)])),
    ("begin_incarnation", lambda store, lease, env: store.begin_incarnation(
        lease, "orders", at=env.now(), reason="recreated")),
    ("record_gap", lambda store, lease, env: store.record_gap(
        lease, Gap("orders", 0, "p0", 0, 1, env.now(), "TG-0554", "recreated"))),
    ("record_start", lambda store, lease, _: store.record_start(lease, "raw", StartRecord("1", 1))),
    ("record_codes", lambda store, lease, env: store.record_codes(
        lease, {"raw": [CodeRecord(1, "[]", env.now())]})),
    ("begin_backfill", lambda store, lease, _: store.begin_backfill(lease, "raw", start=1, steps="s")),
    ("add_unit", lambda store, lease, _: store.add_unit(
        lease, "raw", BackfillUnit(1, 2, 32 * "e", pa.schema([("id", pa.int64())]), (), 0))),
    ("end_backfill", lambda store, lease, _: store.end_backfill(lease, "raw")),
    ("end_replacement", lambda store, lease, env: store.end_replacement(
        lease, Replacement("raw", 32 * "e", "{}", env.now()), [CodeRecord(2, "[1]", env.now())])),
    ("drop_output", lambda store, lease, _: store.drop_output(lease, "raw")),
    ("retime", lambda store, lease, _: store.retime(lease)),
    ("pass_over", lambda store, lease, env: store.pass_over(
        lease, "orders", [Gap("orders", 0, "p0", 1, 2, env.now(), "TG-0640", "by hand")], lift=True)),
    ("append", bind(2)),
    ("bring_back_since", lambda store, lease, _: store.bring_back_since(lease, 2)),
    ("renew", lambda _, lease, __: lease.renew()),
    ("recognise", lambda store, lease, _: store.recognise(lease)),
    ("restore", lambda store, lease, _: store.restore(lease, Rebuilt(
        way=Way(1, ()), incarnation=lease.incarnation, upper=1, published=1, held={}, gaps={}))),
]  # fmt: skip
"""Every way to write with a lease, each of which finds something to change when those before it were done. The last
one ends the lease.
"""


def test_no_way_to_write_is_left_out() -> None:
    writing = {name for name, method in vars(Store).items() if "lease" in _parameters(method)}
    assert {name for name, _ in WRITES} == {*writing, "renew"}
    assert {name for name in vars(Lease) if not name.startswith("_")} >= {"renew", "release"}


def _parameters(method: object) -> set[str]:
    return set(inspect.signature(method).parameters) if inspect.isfunction(method) else set()


@pytest.mark.parametrize("how", ["taken over", "given back", "of a flow that was removed and made anew"])
def test_without_the_lease_nothing_is_written_and_with_it_everything(
    opened: Callable[[], Store], store: Store, url: str, env: Env, clock: Clock, elsewhere: LeaseHolder, how: str
) -> None:
    own(store, env)
    lost = store.acquire("shop", holder=LeaseHolder.current(env))
    if how == "given back":
        lost.release()
    elif how != "taken over":
        sql(url, f"UPDATE flows SET incarnation = '{32 * 'c'}' WHERE name = 'shop'")
    clock.pass_by(EXPIRY)
    other = opened()
    held = other.acquire("shop", holder=elsewhere)
    for name, write in WRITES:
        clock.pass_by(1)
        before = dump(url)
        with pytest.raises(LeaseLost):
            write(store, lost, env)
        lost.release()
        assert dump(url) == before, name
        write(other, held, env)
        assert dump(url) != before, name


PAUSED = """
import sys
from tidegauge.env import Env
from tidegauge.errors.base import TidegaugeError
from tidegauge.remap.binding import Proposal
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.store import LeaseHolder, SourceSpec, Store
env = Env()
store = Store.open(sys.argv[1], env=env)
lease = store.acquire("shop", holder=LeaseHolder.current(env))
store.register(lease, sources={"orders": SourceSpec({})}, outputs={})
for epoch, _ in enumerate(sys.stdin):
    try:
        bound = {"orders": Proposal(frontier=Frontier({"p0": epoch + 1}))}
        print(store.append(lease, expected=epoch, at=env.now(), proposals=bound), flush=True)
    except TidegaugeError as error:
        print(type(error).__name__, flush=True)
"""


def test_a_driver_that_was_stopped_past_its_lease_finds_that_it_lost_it(url: str, elsewhere: LeaseHolder) -> None:
    later = Env(now=lambda: Env().now() + timedelta(seconds=EXPIRY))
    with subprocess.Popen(
        [sys.executable, "-c", PAUSED, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as driver:
        assert driver.stdin is not None
        assert driver.stdout is not None
        driver.stdin.write("go\n")
        assert driver.stdout.readline() == "0\n"
        driver.send_signal(signal.SIGSTOP)
        store = Store.open(url, env=later)
        lease = store.acquire("shop", holder=elsewhere)
        before = dump(url)
        driver.stdin.write("go\n")  # what it was about to do, and does when it goes on
        driver.send_signal(signal.SIGCONT)
        assert driver.stdout.readline() == "LeaseLost\n"
        assert dump(url) == before
        bound = {"orders": Proposal(frontier=Frontier({"p0": 9}))}
        assert store.append(lease, expected=1, at=later.now(), proposals=bound) == 1
        driver.stdin.close()
    store.close()
