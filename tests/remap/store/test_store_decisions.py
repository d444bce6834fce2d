"""What people decide about outputs, in a store of either kind: independent reasons, counted under a lock."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from tests.remap.store.raw import dump, sql

from tidegauge.env import Env
from tidegauge.errors.flow import InvalidArgument, UnknownName
from tidegauge.errors.store import CorruptStore
from tidegauge.remap.store import Lease, LeaseHolder, PauseOutput, ResumeOutput, SetRate, Store


@pytest.fixture
def lease(store: Store, env: Env) -> Lease:
    return store.acquire("shop", holder=LeaseHolder.current(env))


def test_a_driver_hears_of_a_decision_with_whatever_it_writes_next(store: Store, lease: Lease) -> None:
    assert lease.decisions == 0
    made = store.decide("shop", PauseOutput("late"))
    assert (made.number, lease.decisions) == (1, 0)
    lease.renew()
    assert lease.decisions == 1
    store.decide("shop", SetRate(500))
    store.register(lease, sources={}, outputs={})
    assert lease.decisions == 2
    assert store.decisions("shop") == store.load("shop").decisions


def test_r5_reasons_are_independent_of_each_other(store: Store, lease: Lease) -> None:
    store.decide("shop", PauseOutput("late"))
    store.decide("shop", PauseOutput("late", "rate"))
    assert store.decide("shop", ResumeOutput("late")).paused == {"late": {"rate"}}
    assert store.decide("shop", ResumeOutput("late", "rate")).paused == {}
    assert lease.decisions == 0


def test_a_decision_that_stands_is_not_counted_again(store: Store, lease: Lease, url: str) -> None:
    store.decide("shop", PauseOutput("late"))
    store.decide("shop", SetRate(0))
    before = dump(url)
    for again in (PauseOutput("late"), SetRate(0), ResumeOutput("other"), ResumeOutput("late", "rate")):
        assert store.decide("shop", again).number == 2
    assert dump(url) == before
    assert store.decisions("shop").rate == 0
    assert store.decide("shop", SetRate(None)).rate is None
    lease.renew()
    assert lease.decisions == 3


def test_decisions_of_many_at_once_are_all_counted(store: Store, lease: Lease, url: str, env: Env) -> None:
    def pause(number: int) -> None:
        own = Store.open(url, env=env)
        own.decide("shop", PauseOutput(f"late{number}"))
        own.close()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(pause, range(8)))
    found = store.decisions("shop")
    assert (found.number, len(found.paused)) == (8, 8)
    lease.renew()
    assert lease.decisions == 8


def test_a_pause_keeps_the_instant_of_its_beginning(store: Store, lease: Lease, env: Env, clock: object) -> None:
    [pause] = store.decide("shop", PauseOutput("late")).pauses
    clock.pass_by(60)  # type: ignore[attr-defined]
    [again] = store.decide("shop", PauseOutput("late")).pauses
    assert again == pause
    assert again.at is not None
    assert env.now() - again.at == timedelta(minutes=1)
    assert lease.flow == "shop"


def test_a_flow_that_nobody_knows_and_a_name_that_cannot_be_one_are_refused(store: Store, lease: Lease) -> None:
    with pytest.raises(UnknownName, match="shop"):
        store.decide("ship", PauseOutput("late"))
    with pytest.raises(InvalidArgument):
        store.decide("shop", PauseOutput("late\0"))
    assert store.decisions(lease.flow).number == 0


def test_a_reason_that_no_version_has_written_is_damage(store: Store, lease: Lease, url: str) -> None:
    store.decide(lease.flow, PauseOutput("late"))
    sql(url, "UPDATE pauses SET reason = 'whim'")
    with pytest.raises(CorruptStore, match="whim"):
        store.decisions("shop")


def test_a_rate_that_gives_way_is_kept_like_any_other(store: Store, lease: Lease) -> None:
    assert lease.flow == "shop"
    store.decide("shop", SetRate(7))
    assert store.decide("shop", SetRate("auto")).rate == "auto"
    assert store.decisions("shop").rate == store.load("shop").decisions.rate == "auto"
    number = store.decisions("shop").number
    assert store.decide("shop", SetRate("auto")).number == number
    assert store.decide("shop", SetRate(None)).rate is None


def test_a_drop_whose_answer_was_lost_is_told_once_more(store: Store, lease: Lease) -> None:
    """By then nothing is known of the output, neither as one of the flow nor as one that is paused."""
    store.decide("shop", PauseOutput("late", "drop"))
    store.drop_output(lease, "late")
    store.drop_output(lease, "late")
    assert store.decisions("shop").paused == {}
