"""Faults of an object store, between a source and a real server: fault by step, and each cell is counted.

Every cell takes in three objects as a run does: what may pass is tried again. After them each row was read once, and
every binding has the same ranges as without a fault.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.s3 import Lake
from tests.s3_proxy import FAULTS, Fault, Proxy
from tests.sources.file.test_objects import lines, numbers, of, parquet, put

from tidegauge.errors.base import Transient, waited_out
from tidegauge.sources import Json, Parquet

STEPS = {"listing": "list-type", "reading": "/in/"}
KINDS: dict[str, tuple[Any, Callable[..., bytes]]] = {
    "jsonl": (Json("n long"), lambda *found: lines(*found).encode()),
    "jsonl.gz": (Json(), lambda *found: gzip.compress(lines(*found).encode(), mtime=0)),
    "parquet": (Parquet(), parquet),
}
ONCE, LONG = 1, 12
"""A fault that the client sits out by itself, and one that outlasts what it tries."""
QUICK = {("cut within", "reading", ONCE, "jsonl")}


def cells() -> Iterator[Any]:
    for kind in KINDS:
        for fault in FAULTS:
            for step in STEPS:
                for times in (ONCE, LONG):
                    if fault == "slow" and times == LONG:
                        continue
                    quick = (fault, step, times, kind) in QUICK
                    yield pytest.param(kind, fault, step, times, marks=[] if quick else [pytest.mark.long])


@pytest.mark.parametrize(("kind", "fault", "step", "times"), [*cells()])
def test_each_row_is_read_once_whatever_breaks_where(
    lake: Lake, proxy: Proxy, drive: Any, kind: str, fault: str, step: str, times: int
) -> None:
    format_of, data = KINDS[kind]
    driver = drive(of(lake, f"in/*.{kind}", format=format_of))
    told: list[Transient] = []
    broken = Fault(fault, "GET", STEPS[step], times=times)
    for n in range(3):
        put(lake, f"in/{n}.{kind}", data(2 * n, 2 * n + 1))
        if n == 1:
            proxy.faults.append(broken)
        again(driver.tick, told)
        assert numbers(again(driver.catch_up, told)) == [2 * n, 2 * n + 1]
    assert broken.met > 0, "nothing was broken"
    for error in told:
        assert waited_out(error), f"a run would give up: {error}"
        assert "hunter2" not in str(error)
    if fault == "expired":
        assert {error.code for error in told} == {"TG-0581"}
    assert len(driver.epochs) == 3
    assert driver.tick() == []


def again(effect: Any, told: list[Transient]) -> Any:
    for _ in range(40):
        try:
            return effect()
        except Transient as error:
            told.append(error)
    raise AssertionError(f"it did not come to an end: {told[-1]}")
