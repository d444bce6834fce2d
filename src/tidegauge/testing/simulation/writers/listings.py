"""The writers of files that a flow lists: each file is written once, and some change, vanish or cannot be decoded.

They are real files, in a temporary folder that is gone with the world, with the times of the virtual clock. A check
knows the version and the file of each number from the staged manifests.

    appears     a file is written, or is moved into place: then its last change was a while ago
    changes     another version comes under its name, where the source takes that: `on_change="again"` or `"ignore"`,
                and `on_data_loss="gap"`, for it may change before it is read
    vanishes    a file is removed, where the source goes on without it: `on_data_loss="gap"`
    is spoilt   a file has a line that cannot be decoded

Invariant: no version of a file is listed twice, and none is told as lost that is still there.

>>> import tidegauge as tg
>>> user = tg.ListingSource("/in/*.jsonl", format=tg.Json("id long"), staging="/nowhere").placed("shop", "orders")
>>> upstream = ListingsUpstream("orders", user, VirtualClock(), seed=1)
>>> upstream.act(Act(0.5, "append", "orders", 3))
>>> upstream.there(), upstream.end("polls")
({'polls': 1}, 0)
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC
from pathlib import Path
from random import Random
from typing import Final

import pyarrow as pa

from tidegauge.errors.sources import UnreadableRecord
from tidegauge.objects.address import is_address
from tidegauge.remap.fromtime.polled import POLLS
from tidegauge.sources.listings.source import ListingSource
from tidegauge.sources.protocol import BadRecord
from tidegauge.testing.simulation.clock import VirtualClock
from tidegauge.testing.simulation.ledger import Broken
from tidegauge.testing.simulation.plan import Act
from tidegauge.testing.simulation.upstream.counterpart import MetSource
from tidegauge.testing.simulation.writers.lasting import LastingPlaces
from tidegauge.testing.simulation.writers.staging import PollsSeen
from tidegauge.testing.simulation.writers.values import check_columns, made

__all__ = ["ListedVersion", "ListingsUpstream"]

_EVERY: Final = 1.0
"""Seconds between two listings, at most."""
_CHANGED: Final = 0.2
"""How often a writer writes another version, where it may."""
_WHY: Final = "not one JSON object"
_MOVED: Final = 3600
"""Seconds since the last change of a file that is moved into place."""


@dataclass(slots=True, eq=False)
class ListedVersion:
    """A version of a file. modified: nanoseconds since 1970. bad: where its bad line begins, and the line, if any.

    there: whether it is what its path has.
    """

    path: str
    modified: int
    rows: pa.RecordBatch
    bad: tuple[int, bytes] | None = None
    there: bool = True


class ListingsUpstream(LastingPlaces):
    """Files that writers write, and a flow lists. broken: a law that did not hold."""

    def __init__(self, name: str, source: ListingSource, clock: VirtualClock, *, seed: int) -> None:
        self.overtaken = False
        self.name: Final = name
        self.schema: Final = source.schema
        self.broken: Broken | None = None
        check_columns(name, self.schema)
        self._clock: Final = clock
        self._seed: Final = seed
        self._staged: Final = PollsSeen(source.owner, by_rows=True)
        self._files: Final = Path(self._staged.path, "files")
        below = "/" + source.path.replace("://", "/") if is_address(source.path) else source.path
        self._source: Final = replace(
            source, path=f"{self._files}{below}", staging=self._staged.path, every=min(source.every, _EVERY)
        )
        self._now: Final[dict[str, ListedVersion]] = {}
        """The version that each path has, or had last."""
        self._versions: Final[dict[tuple[str, int], ListedVersion]] = {}
        self._listed: Final[list[ListedVersion]] = []
        self._made = 0
        self._files.mkdir()

    def source(self, meet: Callable[[str], None]) -> MetSource:
        """Return the source, as one driver has it."""
        return MetSource(self._source, meet)

    def set_away(self, away: bool) -> None:  # noqa: FBT001
        """Take the folder away, or bring it back."""
        if away == self.whole:
            self._files.rename(f"{self._files}.away") if away else Path(f"{self._files}.away").rename(self._files)
            self.whole = not away

    # What writers do.

    def act(self, act: Act) -> None:
        """Do what a writer does. number: how many rows a file has."""
        random = Random(f"{self._seed} {act.at} {act.what}")  # noqa: S311 - nothing is secret here
        user, there = self._source, [one for one in self._now.values() if one.there]
        match act.what:
            case _ if not self.whole:
                return
            case "append" if random.random() < _CHANGED and self._changing and there:
                self._write(random.choice(there).path, act.number)
            case "append" | "transact" | "grow":
                self._appear(act.number, moved=act.what == "transact")
            case "compact" | "retention" if user.on_data_loss == "gap" and there:
                gone = random.choice(there)
                gone.there, self.overtaken = False, True
                Path(gone.path).unlink()
            case "spoil":
                self.spoilt = True
                self._appear(act.number, bad=f"spoilt {act.number}".encode())

    @property
    def _changing(self) -> bool:
        """Whether a file may have another version."""
        return self._source.on_change != "stop" and self._source.on_data_loss == "gap"

    def _appear(self, count: int, *, moved: bool = False, bad: bytes = b"") -> None:
        path = self._source.path.replace("**/", "")
        for wildcard in ("*", "?"):
            path = path.replace(wildcard, f"{len(self._versions):06}")
        self._write(path, count, moved=moved, bad=bad)

    def _write(self, path: str, count: int, *, moved: bool = False, bad: bytes = b"") -> None:
        """Write a file, or another version of one."""
        first, self._made = self._made, self._made + count
        rows = made(self.schema, seed=self._seed, shard=0, lower=first, upper=self._made)
        lines = [json.dumps(row, default=str).encode() for row in rows.to_pylist()]
        data = b"".join(line + b"\n" for line in [*lines[:1], *filter(None, [bad]), *lines[1:]])
        now = self._clock.now().astimezone(UTC)
        modified = int(now.timestamp() * 1_000_000) * 1000 - _MOVED * 10**9 * moved
        if (before := self._now.get(path)) is not None:
            before.there, self.overtaken = False, True
            modified = max(modified, before.modified + 1000)
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(gzip.compress(data, mtime=0) if path.endswith(".gz") else data)
        os.utime(path, ns=(modified, modified))
        place = (len(lines[0]) + 1, bad) if bad else None
        self._now[path] = self._versions[path, modified] = ListedVersion(path, modified, rows, place)

    # What a check may ask.

    def there(self) -> dict[str, int]:
        """Return how many files have to arrive: those that are listed, and those that are to be."""
        listed = self.end(POLLS)
        versions, paths = {*map(id, self._listed)}, {one.path for one in self._listed}
        again = self._source.on_change == "again" and not self._source.ordered
        coming = [
            one
            for one in self._now.values()
            if one.there and id(one) not in versions and (again or one.path not in paths)
        ]
        return {POLLS: listed + len(coming)} if listed or coming else {}

    def end(self, place: str) -> int:  # noqa: ARG002
        """Return how many files are listed in manifests."""
        for manifest in self._staged.further():
            for entry in self._staged.rows(manifest, ["path", "modified"]).to_pylist():
                found = self._versions.get((entry["path"], entry["modified"]))
                if found is None or found in self._listed:
                    said = f"{self.name}: {entry} is file {len(self._listed)}"
                    self.broken = self.broken or Broken("a version of a file is listed once", said)
                    found = found or ListedVersion(entry["path"], 0, self.schema.empty_table().to_batches()[0])
                self._listed.append(found)
        return len(self._listed)

    def rows(self, place: str, lower: int, upper: int) -> list[pa.RecordBatch]:
        """Return the rows of some files, also of those that are gone."""
        self.end(place)
        return [one.rows for one in self._listed[lower:upper]]

    def bad(self, place: str, lower: int, upper: int) -> list[BadRecord]:
        """Return the lines of some files that cannot be decoded, each with the number of its file."""
        self.end(place)
        return [
            BadRecord(place, number, one.bad[1], UnreadableRecord.code, f"{one.path}, at {one.bad[0]}: {_WHY}")
            for number, one in enumerate(self._listed[lower:upper], lower)
            if one.bad is not None
        ]

    def lose(self, lower: int, upper: int) -> None:
        """Hear that some files are told as lost, or skipped."""
        for number, one in enumerate(self._listed[lower:upper], lower):
            if one.there and one.bad is None and self.broken is None:
                said = f"{self.name}: file {number}, {one.path}, is there"
                self.broken = Broken("no loss is told that is none", said)
