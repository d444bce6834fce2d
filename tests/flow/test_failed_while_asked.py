"""A source that turns out to have failed while it is being asked holds up nobody else."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.flow.recorder import Recorder
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.errors.sources import FileGone


@dataclass
class Failing(Recorder):
    """A source of which the first epoch cannot be read, and that is asked for the second time without an end."""

    over: threading.Event = field(default_factory=threading.Event)
    asked: int = 0

    def probe(self, bound: Any, *, now: datetime) -> Any:
        self.asked += 1
        if self.asked > 1:
            self.over.wait(60)
        return super().probe(bound, now=now)

    def plan(self, slices: Any, bound: Any) -> Any:
        eventually(lambda: self.asked >= 2)
        raise FileGone(path="/gone", lower=0, upper=1)


def test_the_others_are_bound_without_waiting_for_its_answer(tmp_path: Path) -> None:
    def rows() -> tg.GeneratorSource:
        return tg.GeneratorSource(30, columns="n long", max_records_per_epoch=10)

    failing = Failing(rows(), lambda _frontier: None)
    flow = tg.Dataflow("two", store=f"sqlite:///{tmp_path}/flow.db", tick=0.01)
    flow.sink("bad", flow.source("bad", failing), tg.ParquetSink(f"{tmp_path}/bad"))
    flow.sink("good", flow.source("good", rows()), tg.ParquetSink(f"{tmp_path}/good"))
    begun = time.monotonic()
    try:
        with pytest.raises(FileGone):
            flow.run("caught-up", engine=tg.LocalEngine(threads=0))
    finally:
        failing.over.set()
    assert time.monotonic() - begun < 25  # a round waits 30 seconds for an answer
    assert tg.read_arrow(flow, "good").num_rows == 30
