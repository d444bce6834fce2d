"""The writer of loads: somebody loads files while drivers run, and not every load comes to its end.

The loads are made by the code that `tg.load` stands on, in a temporary folder that is gone with the world.

    append      files are loaded that are new
    compact     the same files are loaded again, alone or with a new one: that is refused
    transact    a load is killed once it has staged its rows; later the same files are loaded
    grow        two loads that share a file stage at one time: one of them is made
    spoil       one of several files has a line that cannot be decoded: nothing of that load is there

Invariant: a file is in one load at most, and a load that was refused, or killed, leaves nothing that a driver sees.

>>> import tidegauge as tg
>>> upstream = LoadsUpstream("history", tg.BatchSource("/nowhere", columns="id long"), seed=1)
>>> upstream.act(Act(0.5, "append", "history", 3))
>>> list(upstream.there().values()), upstream.broken
([1], None)
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa

from tidegauge.engine.local import LocalEngine
from tidegauge.errors.loads import FileNotLoadable, LoadedAlready
from tidegauge.job.loading import load_tasks
from tidegauge.sources.batches.loading import LoadFile, check_new, parts_in, publish_load, staging
from tidegauge.sources.batches.manifest import BatchFile
from tidegauge.sources.batches.source import BatchSource
from tidegauge.sources.file.once import check_unchanged, found_files, splits_of
from tidegauge.sources.formats.json import Json
from tidegauge.testing.simulation.ledger import Broken
from tidegauge.testing.simulation.plan import Act
from tidegauge.testing.simulation.upstream.counterpart import MetSource
from tidegauge.testing.simulation.writers.lasting import LastingPlaces
from tidegauge.testing.simulation.writers.staging import StagingFolder
from tidegauge.testing.simulation.writers.values import check_columns, made

__all__ = ["LoadsUpstream"]

_FILES: Final = 3
"""How many files a load has, at most."""


@dataclass(frozen=True, slots=True)
class _LoadableFile:
    """A file that somebody has, or will load. name: of it in their folder."""

    name: str
    rows: pa.RecordBatch


class LoadsUpstream(LastingPlaces):
    """Somebody who loads files into a place. place: its folder. broken: a law that did not hold."""

    def __init__(self, name: str, source: BatchSource, *, seed: int) -> None:
        self.overtaken = False
        self.name: Final = name
        self.schema: Final = source.schema
        self.broken: Broken | None = None
        check_columns(name, self.schema)
        self._seed: Final = seed
        self._folder: Final = StagingFolder()
        self._files: Final = Path(self._folder.path, "files")
        self.place: Final = Path(self._folder.path, "loads")
        self._source: Final = replace(source, path=str(self.place))
        self._loads: Final[dict[str, tuple[_LoadableFile, ...]]] = {}
        self._killed: tuple[_LoadableFile, ...] = ()
        self._made = self._written = 0
        self._files.mkdir()
        self.place.mkdir()

    def source(self, meet: Callable[[str], None]) -> MetSource:
        """Return the source, as one driver has it."""
        return MetSource(self._source, meet)

    def set_away(self, away: bool) -> None:  # noqa: FBT001
        """Take the place away, or bring it back."""
        if away == self.whole:
            self.place.rename(f"{self.place}.away") if away else Path(f"{self.place}.away").rename(self.place)
            self.whole = not away

    # What people do.

    def act(self, act: Act) -> None:
        """Do what somebody does who loads. number: how many rows a file has."""
        random = Random(f"{self._seed} {act.at} {act.what}")  # noqa: S311 - nothing is secret here
        if not self.whole:
            return
        before = [file for files in self._loads.values() for file in files]
        match act.what:
            case "append" if self._killed:
                self._load(self._killed)
                self._killed = ()
            case "append":
                self._load(self._new(act.number, 1 + random.randrange(_FILES)))
            case "compact" if before:
                self._load([random.choice(before), *self._new(act.number, random.randrange(2))], again=True)
            case "transact" if not self._killed:
                self._killed = tuple(self._new(act.number, _FILES))
                self._load(self._killed, killed=True)
            case "grow":
                shared, *others = self._new(act.number, _FILES)
                self._race([shared, *others[:1]], [*others[1:], shared])
            case "spoil":
                self._load(self._new(act.number, _FILES), bad=f"spoilt {act.number}".encode())

    def _new(self, count: int, files: int) -> list[_LoadableFile]:
        """Return files that nobody has loaded."""
        found = list[_LoadableFile]()
        for _ in range(files):
            first, self._made = self._made, self._made + count
            rows = made(self.schema, seed=self._seed, shard=0, lower=first, upper=self._made)
            found.append(_LoadableFile(f"{self._written:06}.jsonl", rows))
            self._written += 1
        return found

    def _load(
        self, files: Sequence[_LoadableFile], *, again: bool = False, killed: bool = False, bad: bytes = b""
    ) -> None:
        """Load files, and see that the load is made, or refused, as it has to be."""
        try:
            with staging(self.place) as folder:
                inputs, parts = self._staged(folder, files, bad)
                if killed:  # its lock goes with it, and what it has staged stays
                    shutil.copytree(str(folder), self.place / "_loads" / f"killed{self._written}")
                    (self.place / "_loads" / f"killed{self._written}" / "lock").unlink()
                    return
                self._loads[publish_load(self.place, folder, "*.jsonl", inputs, parts)] = tuple(files)
        except LoadedAlready as error:
            self._check(again, f"{error.summary}")
        except FileNotLoadable as error:
            self._check(bool(bad), f"{error.summary}")
        else:
            self._check(not again and not bad, f"{[file.name for file in files]} are loaded")

    def _race(self, mine: Sequence[_LoadableFile], yours: Sequence[_LoadableFile]) -> None:
        """Stage two loads that share a file, and make first one of them and then the other."""
        done = 0
        with ExitStack() as both:
            staged = []
            for files in (mine, yours):
                folder = both.enter_context(staging(self.place))
                staged.append((files, folder, *self._staged(folder, files, b"")))
            for files, folder, inputs, parts in staged:
                try:
                    self._loads[publish_load(self.place, folder, "*.jsonl", inputs, parts)] = tuple(files)
                    done += 1
                except LoadedAlready:
                    continue
        self._check(done == 1, f"{done} of two loads with {mine[0].name} are there")

    def _staged(
        self, folder: Any, files: Sequence[_LoadableFile], bad: bytes
    ) -> tuple[list[LoadFile], list[BatchFile]]:
        """Have the rows of files staged, the last of them with a bad line. Raises what a load does."""
        for file in files:
            lines = [json.dumps(row, default=str).encode() for row in file.rows.to_pylist()]
            if bad and file is files[-1]:
                lines.append(bad)
            path = self._files / file.name
            if not path.exists() or bad:
                path.write_bytes(b"".join(line + b"\n" for line in lines))
        form = Json()
        found = [one for file in files for one in found_files(str(self._files / file.name), form)]
        # The names of loads follow from addresses, and must be those of the same world another time.
        inputs = [LoadFile(Path(one.address).name, one.identity, one.size) for one in found]
        check_new(self.place, inputs)
        addresses = {str(number): one.address for number, one in enumerate(found)}
        splits = splits_of(found, form, self.schema)
        tasks = load_tasks(splits, format=form, folder=parts_in(folder), addresses=addresses)
        staged = LocalEngine(threads=0).work(tasks)
        check_unchanged(found)
        return inputs, [BatchFile(one.path, one.bytes, one.rows) for some in staged for one in some]

    def _check(self, holds: bool, said: str) -> None:  # noqa: FBT001
        if not holds and self.broken is None:
            self.broken = Broken("each file is in one load, and all of a load or nothing is", f"{self.name}: {said}")

    # What a check may ask.

    def there(self) -> dict[str, int]:
        """Return the loads, each of one batch."""
        return dict.fromkeys(self._loads, 1)

    def end(self, place: str) -> int:
        """Return 1 for a load, and 0 for any other name."""
        return int(place in self._loads)

    def rows(self, place: str, lower: int, upper: int) -> list[pa.RecordBatch]:
        """Return the rows of a load."""
        return [file.rows for file in self._loads.get(place, ())] if lower < upper else []
