"""The threads of polls: few where polls are quick, enough where they are slow, and none behind one that hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import wait

import pytest

from tidegauge.sources.polls import threads
from tidegauge.sources.polls.threads import PollThreads

_PATIENCE = 60.0


def held(event: threading.Event) -> Callable[[], None]:
    def poll() -> None:
        event.wait(_PATIENCE)

    return poll


def alive() -> int:
    return sum(one.name.startswith("tidegauge-poll") for one in threading.enumerate())


def test_a_thousand_quick_polls_have_few_threads() -> None:
    polls, used, lock = PollThreads(sources=1000, processor=time.monotonic), set[int](), threading.Lock()

    def poll() -> None:
        with lock:
            used.add(threading.get_ident())

    under_way = [polls(poll) for _ in range(1000)]
    assert not wait(under_way, _PATIENCE).not_done
    assert len(used) < 64
    polls.close()


def test_polls_that_hang_hold_up_no_others() -> None:
    polls, release = PollThreads(sources=1000, processor=time.monotonic), threading.Event()
    hung = [polls(held(release)) for _ in range(20)]
    others = [polls(lambda: None) for _ in range(100)]
    assert not wait(others, _PATIENCE / 2).not_done
    assert not any(one.done() for one in hung)
    release.set()
    assert not wait(hung, _PATIENCE).not_done
    polls.close()


def test_threads_double_where_upstreams_are_far_away_and_the_processor_has_room() -> None:
    together = threading.Barrier(100)
    polls = PollThreads(sources=1000, processor=lambda: 0.0)

    def poll() -> None:
        together.wait(_PATIENCE)

    far = [polls(poll) for _ in range(100)]
    done = wait(far, _PATIENCE)
    assert not done.not_done
    assert all(one.exception() is None for one in far)
    polls.close()


def test_an_error_is_that_of_its_poll_alone() -> None:
    polls = PollThreads(sources=1)

    def wrong() -> None:
        raise LookupError("of its own")

    bad, good = polls(wrong), polls(lambda: None)
    wait([bad, good], _PATIENCE)
    assert isinstance(bad.exception(), LookupError)
    assert good.exception() is None
    polls.close()


def test_a_look_at_one_source_waits_for_its_poll_and_a_look_at_a_thousand_does_not() -> None:
    begun, release = time.monotonic(), threading.Event()
    many, one = PollThreads(sources=1000), PollThreads(sources=1)
    slow = many(held(release))
    with pytest.raises(TimeoutError):
        slow.exception(timeout=_PATIENCE)
    assert time.monotonic() - begun < _PATIENCE / 2
    release.set()
    assert one(lambda: time.sleep(0.3)).exception(timeout=_PATIENCE) is None
    many.close()
    one.close()


def test_threads_without_work_end_and_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    before = alive()
    monkeypatch.setattr(threads, "IDLE", 0.01)
    polls = PollThreads(sources=1)
    for _ in range(30):
        assert polls(lambda: None).exception(timeout=_PATIENCE) is None
        time.sleep(0.012)  # about as long as threads stay: some end while the next poll comes
    until = time.monotonic() + _PATIENCE
    while alive() > before and time.monotonic() < until:
        time.sleep(0.01)
    assert alive() <= before
    assert polls(lambda: None).exception(timeout=_PATIENCE) is None
    polls.close()


def test_close_ends_threads_once_they_are_through() -> None:
    before, release = alive(), threading.Event()
    polls = PollThreads(sources=1)
    under_way = [polls(held(release)) for _ in range(3)]
    polls.close()
    release.set()
    assert not wait(under_way, _PATIENCE).not_done
    until = time.monotonic() + _PATIENCE
    while alive() > before and time.monotonic() < until:
        time.sleep(0.01)
    assert alive() <= before
