"""Every source holds the laws of the kit for connectors, which a user's own source is checked with, too."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.s3 import Lake
from tests.sources.benches import (
    FORMATS,
    BatchBench,
    GeneratorBench,
    HttpBench,
    KafkaBench,
    PollBench,
    file_bench,
    object_bench,
)
from tests.sources.listings.bench import ListingBench

from tidegauge.sources import (
    BatchSource,
    BytewaxLogSource,
    BytewaxSource,
    FileSource,
    GeneratorSource,
    HttpSource,
    KafkaSource,
    ListingSource,
    PollingSource,
    Source,
)
from tidegauge.testing import Endpoint
from tidegauge.testing.kit import ConnectorReport, check_source

WHOLE = 1 << 30
"""So large that a split has all of a file or a partition."""
NOT_OF_POLLS = {"the end is the end", "bad records are told and reading goes on", "it is cut between records"}
"""The laws that do not concern a source that is polled: its rows are staged, and come whole."""


def untried(report: ConnectorReport) -> set[str]:
    """The laws of which a report says nothing."""
    return {finding.name for finding in report.findings if finding.untried}


def checked_by_the_type_checkers(
    file: FileSource,
    generator: GeneratorSource,
    kafka: KafkaSource,
    batches: BatchSource,
    polls: PollingSource,
    theirs: BytewaxSource,
    log: BytewaxLogSource,
    http: HttpSource,
    listing: ListingSource,
) -> list[Source]:
    """The seam in full: a method that a source lacks is a type error here."""
    return [file, generator, kafka, batches, polls, theirs, log, http, listing]


@pytest.mark.parametrize("kind", FORMATS)
def test_files_hold_every_law_in_small_splits(kind: str) -> None:
    report = check_source(lambda folder: file_bench(folder, kind), many=0, deadline=120)
    report.require()
    assert untried(report) <= {"memory is bounded", "the end is the end", "bad records are told and reading goes on"}


@pytest.mark.parametrize("kind", FORMATS)
def test_files_hold_every_law_in_splits_of_many_batches(kind: str) -> None:
    check_source(lambda folder: file_bench(folder, kind, WHOLE), many=300_000, deadline=120).require()


@pytest.mark.long
@pytest.mark.parametrize(("split", "many"), [(24, 0), (WHOLE, 300_000)])
@pytest.mark.parametrize("kind", FORMATS)
def test_objects_hold_every_law(lake: Lake, kind: str, split: int, many: int) -> None:
    report = check_source(lambda _folder: object_bench(lake, kind, split), many=many, deadline=240)
    report.require()
    assert untried(report) <= {"memory is bounded", "the end is the end", "bad records are told and reading goes on"}


def test_a_generator_holds_every_law() -> None:
    report = check_source(lambda folder: GeneratorBench(), many=300_000, deadline=120)
    report.require()
    assert "the end is the end" in {finding.name for finding in report.findings if finding.held}


def test_batches_of_queries_hold_every_law() -> None:
    report = check_source(BatchBench, many=300_000, deadline=120)
    report.require()
    assert untried(report) <= {
        "the end is the end",
        "bad records are told and reading goes on",
        "it is cut between records",
        "secrets are nowhere",
    }


def test_polls_hold_every_law() -> None:
    report = check_source(PollBench, many=300_000, deadline=120)
    report.require()
    assert untried(report) == NOT_OF_POLLS


def test_a_source_of_bytewax_holds_every_law(request: pytest.FixtureRequest) -> None:
    pytest.importorskip("bytewax", reason="bytewax needs Python 3.11 or 3.12")
    from tests.sources.bytewax.bench import BytewaxBench

    def bench(folder: Path) -> BytewaxBench:
        made = BytewaxBench(folder)
        request.addfinalizer(lambda: made.poller.close())
        return made

    report = check_source(bench, many=300_000, deadline=120)
    report.require()
    assert untried(report) == NOT_OF_POLLS


def test_a_log_of_bytewax_holds_every_law() -> None:
    pytest.importorskip("bytewax", reason="bytewax needs Python 3.11 or 3.12")
    from tests.sources.bytewax.bench import BytewaxLogBench

    report = check_source(BytewaxLogBench, many=300_000, deadline=120)
    report.require()
    assert untried(report) == NOT_OF_POLLS


def test_listings_hold_every_law() -> None:
    report = check_source(ListingBench, many=300_000, deadline=120)
    report.require()
    assert untried(report) == {"the end is the end"}


def test_answers_over_http_hold_every_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("TIDEGAUGE_TEST_TOKEN", "")
    report = check_source(HttpBench, many=300_000, deadline=120)
    report.require()
    assert untried(report) == NOT_OF_POLLS


@pytest.fixture
def topic_bench(
    kafka_broker: Endpoint, make_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> Callable[[int], KafkaBench]:
    secret = ("TIDEGAUGE_TEST_NAME", f"hunter-{uuid.uuid4().hex}")
    monkeypatch.setenv(*secret)
    return lambda split: KafkaBench(kafka_broker, make_topic(partitions=2), secret, split)


def test_a_topic_holds_every_law(topic_bench: Callable[[int], KafkaBench]) -> None:
    def make(folder: Path) -> KafkaBench:
        return topic_bench(3)

    check_source(make, many=0, deadline=240).require()


@pytest.mark.long
def test_a_topic_holds_every_law_in_splits_of_many_batches(topic_bench: Callable[[int], KafkaBench]) -> None:
    check_source(lambda folder: topic_bench(WHOLE), many=300_000, deadline=240).require()
