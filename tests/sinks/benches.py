"""Benches for `check_sink`: each sink of Tidegauge on a place of its own, with a reader that knows nothing of it."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.sinks.conftest import KINDS
from tests.sinks.kafka.conftest import consumed
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.kafka import Settings
from tidegauge.kafka.clients import admin
from tidegauge.kafka.cluster import described
from tidegauge.sinks import KafkaSink, Sink
from tidegauge.testing import Endpoint

__all__ = ["TableBench", "TopicBench"]


@dataclass
class TableBench:
    """A table in a folder."""

    folder: Path
    kind: str
    sink: Any = field(init=False)

    def __post_init__(self) -> None:
        self.path = self.folder / "lake" / "orders"
        self.sink = KINDS[self.kind].make(str(self.path))

    def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = KINDS[self.kind].read(str(self.path)).to_pylist()
        return found

    def remove(self) -> None:
        shutil.rmtree(self.path)

    def ways(self) -> Sequence[Sink]:
        self.path.parent.mkdir()
        (self.folder / "pond").symlink_to("lake")
        ways = (f"{self.folder}/pond/orders", f"{self.path}/", f"file://{self.path}")
        return [KINDS[self.kind].make(way) for way in ways]

    def elsewhere(self) -> Sink:
        sink: Sink = KINDS[self.kind].make(f"{self.path}-2")
        return sink

    def layouts(self) -> Sequence[Sink]:
        """Such as the reader of this bench finds all columns in: parted by what is a column beside."""
        make: Any = KINDS[self.kind].make
        parted = [make(str(self.path), partition_by=tg.bucket(3, "user"), sort_by="amount")]
        return [*parted, make(str(self.path), sort_by="user", file_size="1KB")]


@dataclass
class TopicBench:
    """A topic that the first commit makes."""

    folder: Path
    broker: Endpoint
    sink: KafkaSink = field(init=False)

    def __post_init__(self) -> None:
        topic = f"checked-{uuid.uuid4().hex}"
        self.sink = KafkaSink(self.broker.servers, topic=topic, partitions=1, staging=str(self.folder / "staging"))

    def rows(self) -> list[dict[str, Any]]:
        found = consumed(self.broker.servers, self.sink.topic)
        return [{**message.row, "_epoch": message.epoch} for message in found]

    def remove(self) -> None:
        with admin(Settings.of(self.broker.servers)) as client:
            for deleted in client.handle.delete_topics([self.sink.topic]).values():
                deleted.result()
            eventually(lambda: not described(client, [self.sink.topic], servers=self.broker.servers))

    def ways(self) -> Sequence[Sink]:
        return [replace(self.sink, key="user"), replace(self.sink, staging=f"{self.folder}/elsewhere")]

    def elsewhere(self) -> Sink:
        return replace(self.sink, topic=f"{self.sink.topic}-2")
