"""One driver for each flow: real processes race, are killed, and are taken over from."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegauge.env import Env
from tidegauge.errors.store import FlowAlreadyRunning, LeaseLost
from tidegauge.remap.binding import Proposal
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.store import EXPIRY, Lease, LeaseHolder, OutputSpec, SourceSpec, Store
from tidegauge.remap.store.lease import may_take, started


class Clock(Protocol):
    """The clock of the fixtures: it stands still until it is moved."""

    def pass_by(self, seconds: float) -> None: ...


DRIVER = """
import sys
from tidegauge.env import Env
from tidegauge.errors.store import FlowAlreadyRunning
from tidegauge.remap.store import LeaseHolder, Store
env = Env()
print("ready", flush=True)
stores = []
for url in sys.stdin:
    stores.append(Store.open(url.strip(), env=env))
    try:
        stores[-1].acquire("shop", holder=LeaseHolder.current(env))
        print("won", flush=True)
    except FlowAlreadyRunning as refused:
        print("lost", refused.evidence["pid"], flush=True)
"""


@contextmanager
def driver() -> Iterator[subprocess.Popen[str]]:
    """A process that opens each store that it is told of, and asks for the lease."""
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert say(process) == "ready"
        yield process
    finally:
        process.kill()
        process.communicate()


def say(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def go(process: subprocess.Popen[str], url: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{url}\n")
    process.stdin.flush()


def test_of_two_processes_that_race_on_a_new_store_exactly_one_wins(place: Callable[[str], str]) -> None:
    with driver() as one, driver() as two:
        for attempt in range(5):
            url = place(f"store{attempt}")
            go(one, url)
            go(two, url)
            answers = {one.pid: say(one), two.pid: say(two)}
            winner = next(pid for pid, answer in answers.items() if answer == "won")
            loser = next(pid for pid in answers if pid != winner)
            assert answers[loser] == f"lost {winner}"


@pytest.mark.parametrize("reaped", [True, False])
def test_the_lease_of_a_killed_process_is_taken_over_at_once(url: str, reaped: bool) -> None:
    env = Env()
    with driver() as process:
        go(process, url)
        assert say(process) == "won"
        store = Store.open(url, env=env)
        with pytest.raises(FlowAlreadyRunning) as caught:
            store.acquire("shop", holder=LeaseHolder.current(env))
        assert caught.value.evidence["pid"] == process.pid
        process.kill()
        if reaped:
            process.wait()
        else:
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        lease = store.acquire("shop", holder=LeaseHolder.current(env))
        lease.renew()
        store.close()


def test_a_second_driver_is_told_who_runs_the_flow(
    store: Store, env: Env, lease: Lease, elsewhere: LeaseHolder
) -> None:
    with pytest.raises(FlowAlreadyRunning) as caught:
        store.acquire("shop", holder=elsewhere)
    told = str(caught.value)
    for part in (lease.holder.name, lease.holder.host, str(lease.holder.pid), "2026-11-20 17:00:00+00:00"):
        assert part in told
    store.acquire("another", holder=elsewhere)


def test_a_lease_is_taken_over_when_it_was_not_renewed_in_time(
    store: Store, env: Env, clock: Clock, elsewhere: LeaseHolder
) -> None:
    far = store.acquire("shop", holder=elsewhere)
    clock.pass_by(EXPIRY - 1)
    far.renew()
    clock.pass_by(EXPIRY - 1)
    with pytest.raises(FlowAlreadyRunning):
        store.acquire("shop", holder=LeaseHolder.current(env))
    clock.pass_by(1)
    store.acquire("shop", holder=LeaseHolder.current(env))
    with pytest.raises(LeaseLost, match=f"process {os.getpid()}, has it since"):
        far.renew()


def test_a_driver_that_lost_its_lease_can_write_nothing(
    opened: Callable[[], Store], store: Store, env: Env, lease: Lease, clock: Clock, elsewhere: LeaseHolder
) -> None:
    store.append(lease, expected=0, at=env.now(), proposals={"orders": Proposal(frontier=Frontier({"p": 1}))})
    clock.pass_by(EXPIRY)
    other = opened().acquire("shop", holder=elsewhere)
    before = store.load("shop")
    proposal = Proposal(frontier=Frontier({"p": 2}))
    writes: list[Callable[[], object]] = [
        lambda: store.append(lease, expected=1, at=env.now(), proposals={"orders": proposal}),
        lambda: store.publish(lease, expected=0, upper=1, at=env.now()),
        lambda: store.advance_since(lease, 0),
        lambda: store.register(lease, sources={"new": SourceSpec({})}, outputs={"o": OutputSpec("new", {})}),
        lambda: store.record_failure(lease, "orders", 1, LeaseLost(flow="shop", now="x")),
        lambda: store.clear_failure(lease, "orders"),
        lambda: store.record_output_failure(lease, "o", 1, LeaseLost(flow="shop", now="x")),
        lambda: store.clear_output_failure(lease, "o"),
        lease.renew,
    ]
    for write in writes:
        with pytest.raises(LeaseLost, match="grace on elsewhere, process 4711"):
            write()
    after = store.load("shop")
    assert (after.flow, after.outputs, list(after.sources)) == (before.flow, before.outputs, list(before.sources))
    lease.release()
    other.renew()


def test_a_released_lease_is_free_and_gone(store: Store, lease: Lease, elsewhere: LeaseHolder) -> None:
    lease.release()
    with pytest.raises(LeaseLost, match="nobody has it now"):
        lease.renew()
    store.acquire("shop", holder=elsewhere).release()
    lease.release()


def test_a_run_that_asks_again_gets_its_own_lease(store: Store, env: Env, clock: Clock) -> None:
    me = LeaseHolder.current(env)
    first = store.acquire("shop", holder=me)
    clock.pass_by(5)
    again = store.acquire("shop", holder=me)
    assert (again.token, again.since, again.incarnation) == (first.token, first.since, first.incarnation)
    with pytest.raises(FlowAlreadyRunning):
        store.acquire("shop", holder=LeaseHolder.current(env))


def test_a_process_that_is_gone_has_not_started() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert started(process.pid) is None
    assert started(os.getpid()) == LeaseHolder.current(Env()).process_started


ME = LeaseHolder(name="me", host="here", boot="kernel:1", pid=10, process_started=100, run="0" * 32)


@pytest.mark.parametrize(
    ("held", "process", "taken"),
    [
        (ME, 100, False),
        (ME, None, True),
        (ME, 101, True),  # the number belongs to another process now
        (ME, "alive", False),
        (replace(ME, process_started=None), 100, False),
        (replace(ME, host="there"), None, False),
        (replace(ME, boot="older:1"), 100, True),  # rebooted since
        (replace(ME, boot="kernel:2"), None, False),  # in another container: nothing is known of it
    ],
)
def test_only_a_process_that_is_known_to_be_gone_is_taken_over_from_at_once(
    held: LeaseHolder, process: int | None, taken: bool
) -> None:
    assert may_take(held, renewed=0.0, me=ME, started=lambda _pid: process) == taken


@settings(deadline=None)
@given(st.floats(-1e6, 1e6))
def test_after_the_expiry_anyone_may_take_over(renewed: float) -> None:
    held = replace(ME, host="there")
    assert may_take(held, renewed=renewed, me=ME, started=lambda _pid: 100) == (renewed >= EXPIRY)
