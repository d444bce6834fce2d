"""Every source that pushes holds the laws of the kit for connectors, ours and the one of the guide; each law is seen
broken."""

from __future__ import annotations

import importlib
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.docs.pages import ROOT, blocks
from tests.sources.push_benches import JournalBench, SocketBench

from tidegauge.errors.push import StartForgotten
from tidegauge.remap.binding import Bound
from tidegauge.remap.frontier import Frontier
from tidegauge.sources import SocketSource
from tidegauge.sources.protocol import OnBadRecord
from tidegauge.sources.push.protocol import DecodedLater, PushSource, Received, Subscription
from tidegauge.testing import LogServer
from tidegauge.testing.kit import PushBench, check_push_source
from tidegauge.testing.kit.push_laws import PUSH_LAWS
from tidegauge.testing.kit.trial import check


def checked_by_the_type_checkers(source: SocketSource) -> tuple[PushSource, DecodedLater]:
    """The seam in full: a method that a source lacks is a type error here."""
    return source, source


Maker = Callable[[str], Callable[[Path], PushBench]]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Maker]:
    """Make a maker of benches of a kind."""
    page = [block.text for block in blocks(ROOT / "docs" / "how-to" / "write-a-push-source.md")]
    [text] = [text for text in page if text.startswith("# journal.py\n")]
    (tmp_path / "pushed_journal.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)

    def made(kind: str) -> Callable[[Path], PushBench]:
        if kind == "socket":
            return lambda folder: SocketBench(LogServer().__enter__())
        return lambda folder: JournalBench(folder / "upstream", importlib.import_module("pushed_journal").Journal)

    yield made
    sys.modules.pop("pushed_journal", None)


def test_a_socket_holds_every_law(make: Maker) -> None:
    report = check_push_source(make("socket"), deadline=120)
    report.require()
    assert all(finding.held for finding in report.findings)


def test_the_journal_of_the_guide_holds_every_law(make: Maker) -> None:
    check_push_source(make("journal"), deadline=120).require()


@dataclass(frozen=True)
class Broken:
    """A source that breaks one law, and holds the others as the one behind it does."""

    source: Any
    fault: str

    @property
    def unit(self) -> str:
        return str(self.source.unit)

    @property
    def streams(self) -> Mapping[str, pa.Schema]:
        found: Mapping[str, pa.Schema] = self.source.streams
        return found

    def describe(self) -> Mapping[str, Any]:
        number = uuid.uuid4().hex if self.fault == "describes itself as another" else ""
        return {**self.source.describe(), "number": number}

    def connect(self, start: Frontier, bound: Bound) -> Subscription:
        try:
            return Faulty(self.source.connect(start, bound), start, self.fault)
        except StartForgotten as error:
            if self.fault != "begins with what there is":
                raise
            later = Frontier({error.evidence["partition"]: error.evidence["oldest"]}).join(start)
            return Faulty(self.source.connect(later, bound), later, self.fault)

    def decode(self, stream: str, batch: pa.RecordBatch, on_bad_record: OnBadRecord) -> pa.RecordBatch:
        found: pa.RecordBatch
        if not isinstance(self.source, DecodedLater):
            found = batch.select(self.streams[stream].names)
        elif self.fault == "swallows bad records":
            found = self.source.decode(stream, batch, lambda _bad: None)
        else:
            found = self.source.decode(stream, batch, on_bad_record)
        return found


class Faulty:
    """Its connection."""

    def __init__(self, inner: Subscription, start: Frontier, fault: str) -> None:
        self.inner, self.start, self.fault = inner, start, fault
        self.identity = "always the same" if fault == "hides who upstream is" else inner.identity
        self.last: Received | None = None

    def receive(self, limit: int, seconds: float) -> Received | None:
        try:
            received = self.inner.receive(limit, seconds)
        except OSError:
            if self.fault != "hears of no cut":
                raise
            return None
        if received is None:
            return self.last if self.fault == "finds news in nothing" else None
        self.last = replace(received, batches=())
        end, frontier, batches = received.end, received.frontier, received.batches
        match self.fault:
            case "leaves out a record":
                batches = [(stream, batch.slice(int(batch.num_rows > 1))) for stream, batch in batches]
            case "leaves out its start" if self.start:
                batches, self.start = [(stream, batch.slice(1)) for stream, batch in batches], Frontier()
            case "says an old end":
                end = frontier
            case "hides that upstream lost records":
                end = None if end is None else end.join(self.start)
            case "never says that it is over":
                frontier = Frontier(dict(frontier.items()))
        return Received(batches, frontier, end)

    def acknowledge(self, frontier: Frontier) -> None:
        if self.fault == "acknowledges too much" and frontier:
            frontier = Frontier({partition: at + 1 for partition, at in frontier.items()})
        self.inner.acknowledge(frontier)

    def close(self) -> None:
        self.inner.close()


FAULTS = {
    "describes itself as another": ("it_is_a_value", "socket"),
    "leaves out a record": ("each_record_comes_once_and_in_order", "socket"),
    "leaves out its start": ("the_records_depend_on_the_start_alone", "socket"),
    "finds news in nothing": ("without_news_it_gives_nothing_soon", "socket"),
    "says an old end": ("the_end_says_how_far_upstream_goes", "journal"),
    "acknowledges too much": ("acknowledging_loses_nothing_that_is_left", "journal"),
    "hears of no cut": ("a_connection_that_is_cut_is_an_error_that_passes", "socket"),
    "begins with what there is": ("records_that_are_gone_are_refused", "socket"),
    "hides that upstream lost records": ("an_older_backup_is_refused", "socket"),
    "hides who upstream is": ("another_log_is_refused", "socket"),
    "never says that it is over": ("the_end_is_sealed_once_all_has_come", "socket"),
    "swallows bad records": ("bad_records_are_told_and_the_others_decoded", "socket"),
}


BY_NAME = {law.__name__: law for law in PUSH_LAWS}


def test_a_fault_is_planted_for_each_law() -> None:
    assert {law for law, _kind in FAULTS.values()} == BY_NAME.keys()


@pytest.mark.parametrize("fault", FAULTS)
def test_each_law_notices_a_source_that_breaks_it(fault: str, make: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegauge.testing.kit.connection.PATIENCE", 1.0)
    law, kind = FAULTS[fault]

    def faulty(folder: Path) -> PushBench:
        bench: Any = make(kind)(folder)
        bench.source = Broken(bench.source, fault)
        found: PushBench = bench
        return found

    report = check("source", PushBench, [BY_NAME[law]], faulty, deadline=120, put=lambda bench, _folder: bench)
    [broken] = report.broken
    assert broken.name == law.replace("_", " ")
    assert broken.example
    assert broken.remedy
