"""What sources that are asked together share: each thing is found once, and nobody waits for anything else."""

from __future__ import annotations

import errno
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.waiting import eventually

from tidegauge.remap.findings import Findings


def test_however_many_ask_at_once_a_thing_is_found_once() -> None:
    calls: list[int] = []
    begun, go = threading.Event(), threading.Event()

    def find() -> list[int]:
        begun.set()
        assert go.wait(60)
        calls.append(1)
        return calls

    findings = Findings()
    beside = [findings.beside() for _ in range(8)]
    with ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(one.once, "folder", find) for one in beside]
        assert begun.wait(60)
        assert findings.beside().once("another folder", lambda: 7) == 7
        go.set()
        assert all(answer.result() is calls for answer in asked)
    assert len(calls) == 1


class Meter:
    """A clock that goes on by one whenever somebody looks at it."""

    def __init__(self) -> None:
        self.looks = 0

    def __call__(self) -> float:
        self.looks += 1
        return float(self.looks)


def test_who_waits_for_another_knows_for_how_long_and_who_finds_has_not_waited() -> None:
    clock = Meter()
    finder = Findings(clock=clock)
    waiter = finder.beside()
    inside, go = threading.Event(), threading.Event()

    def find() -> str:
        inside.set()
        assert go.wait(60)
        return "found"

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(finder.once, "folder", find)
        assert inside.wait(60)
        second = threads.submit(waiter.once, "folder", find)
        eventually(lambda: clock.looks == 2)  # it has begun to wait
        go.set()
        assert (first.result(), second.result()) == ("found", "found")
    assert (finder.waited, waiter.waited) == (0, 1)


def test_an_error_of_the_system_is_found_once_and_each_gets_one_of_its_own() -> None:
    calls = []

    def find() -> None:
        calls.append(1)
        raise PermissionError(errno.EACCES, "Permission denied", "/landing")

    findings = Findings()
    raised = []
    for one in (findings, findings.beside()):
        with pytest.raises(PermissionError) as caught:
            one.once("folder", find)
        raised.append(caught.value)
    assert len(calls) == 1
    assert raised[0] is not raised[1]
    assert [(error.errno, error.filename) for error in raised] == [(errno.EACCES, "/landing")] * 2


def test_after_another_error_the_next_one_looks_for_itself() -> None:
    findings = Findings()

    def bug() -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        findings.once("folder", bug)
    assert findings.beside().once("folder", lambda: 5) == 5


def test_a_copy_elsewhere_finds_all_by_itself() -> None:
    findings = Findings()
    findings.once("folder", lambda: 5)
    assert pickle.loads(pickle.dumps(findings)).once("folder", lambda: 6) == 6
