"""Simulated sources pass the laws of every source, pulled or pushed, as the kit for connectors tries them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidegauge as tg
from tidegauge.remap.frontier import Frontier
from tidegauge.sources import FileSource, Source
from tidegauge.sources.push.protocol import PushSource
from tidegauge.testing.kit import PushedRecord, check_push_source, check_source
from tidegauge.testing.simulation.upstream import FeedLog, Folder, PartitionedLog, SimulatedFeed, SimulatedLog
from tidegauge.testing.simulation.upstream.folder import read_from

LATER = datetime(2100, 1, 1, tzinfo=UTC)


class LogBench:
    """A topic of two partitions, the records of one call in one of them."""

    def __init__(self, _folder: Path) -> None:
        self.log = PartitionedLog({"t": 2})
        self.source: Source = SimulatedLog(self.log, columns="n long", split_records=3)
        self.number = 0

    def add(self, count: int) -> Sequence[dict[str, Any]]:
        taken = range(self.number, self.number + count)
        self.number += count
        self.log.append(f"t-{self.number % 2}", pa.record_batch({"n": pa.array(taken, pa.int64())}))
        return [{"n": n} for n in taken]

    def spoil(self) -> bytes:
        self.log.append_bad("t-0", b"no record")
        return b"no record"

    def lose(self) -> None:
        for place in ("t-0", "t-1"):
            self.log.trim(place, self.log.end(place))

    def recreate(self) -> None:
        self.log.recreate("t", 2)
        self.add(self.number)

    def leave(self) -> None:
        self.log.away = True

    def come_back(self) -> None:
        self.log.away = False


class FolderBench:
    """Lines of numbers that come into two files in turn."""

    now = LATER

    def __init__(self, _folder: Path) -> None:
        self.folder = Folder()
        self.source: Source = read_from(
            FileSource("/in/*.jsonl", format=tg.Json("n long"), split_bytes=30), self.folder
        )
        self.number = 0

    def add(self, count: int) -> Sequence[dict[str, Any]]:
        taken = range(self.number, self.number + count)
        self.number += count
        data = b"".join(f'{{"n": {n}}}\n'.encode() for n in taken)
        self.folder.append(f"/in/{self.number % 2}.jsonl", data, at=LATER)
        return [{"n": n} for n in taken]

    def spoil(self) -> bytes:
        self.folder.append("/in/0.jsonl", b"no record\n", at=LATER)
        return b"no record\n"

    def lose(self) -> None:
        for path in self.folder.paths:
            self.folder.shrink(path, len(self.folder.content(path)) - 3, at=LATER)

    def recreate(self) -> None:
        for path in self.folder.paths:
            other = self.folder.content(path).replace(b'{"n": ', b'{"n": 9')
            self.folder.rewrite(path, other, at=LATER)

    def leave(self) -> None:
        self.folder.away = True

    def come_back(self) -> None:
        self.folder.away = False


@pytest.mark.parametrize("bench", [LogBench, FolderBench])
def test_it_passes_the_laws_of_sources(bench: Any) -> None:
    report = check_source(bench, many=0)
    assert report.ok, str(report)


class FeedBench:
    """Records of two streams, in two partitions in turn."""

    def __init__(self, _folder: Path) -> None:
        self.feed = FeedLog()
        columns = pa.schema([("n", pa.int64())])
        self.source: PushSource = SimulatedFeed(self.feed, streams={"even": columns, "odd": columns})
        self.number = 0

    def add(self, count: int) -> Sequence[PushedRecord]:
        taken, self.number = range(self.number, self.number + count), self.number + count
        return [self.append(n) for n in taken]

    def append(self, n: int) -> PushedRecord:
        stream, place = "odd" if n % 2 else "even", f"feed-{n % 3 % 2}"
        position = self.feed.log.end(place)
        self.feed.append(place, pa.record_batch({"n": pa.array([n], pa.int64())}), stream=stream)
        return PushedRecord(stream, place, position, {"n": n})

    def cut(self) -> None:
        self.feed.cut()

    def lose(self) -> None:
        self.feed.lose("feed-0", 1)

    def restore(self, end: Frontier) -> None:
        self.feed.restore(end)

    def recreate(self) -> None:
        self.feed.replace()


def test_a_feed_passes_the_laws_of_sources_that_push() -> None:
    report = check_push_source(FeedBench)
    assert report.ok, str(report)
    untried = [finding.name for finding in report.findings if finding.untried]
    assert untried == ["the end is sealed once all has come", "bad records are told and the others decoded"]
