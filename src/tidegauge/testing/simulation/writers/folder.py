"""The writers of a folder: lines at the end of files, torn ones, and files that come late.

A source names a file by how it began when it was seen first, which is for the driver to say. So a check `learn`s from
the binding's details which file a partition is; where its lines begin and end, the writers know.

>>> from tidegauge.sources import FileSource, Json
>>> source = FileSource("/landing/*.jsonl", format=Json("id long"))
>>> upstream = FolderUpstream("orders", source, Folder(), VirtualClock(), seed=1)
>>> upstream.act(Act(0.5, "append", "orders", 3))
>>> upstream.learn("p", {"ino": 1})
>>> [batch.num_rows for batch in upstream.rows("p", 0, upstream.end("p"))]
[3]
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

import pyarrow as pa

from tidegauge.errors.simulable import ColumnsNotDeclared
from tidegauge.sources import FileSource
from tidegauge.sources.metadata import without_metadata
from tidegauge.testing.simulation.clock import VirtualClock
from tidegauge.testing.simulation.plan import Act
from tidegauge.testing.simulation.upstream.counterpart import MetSource
from tidegauge.testing.simulation.upstream.folder import Folder, read_from
from tidegauge.testing.simulation.writers.values import check_columns, made

__all__ = ["FolderUpstream"]

_FILES: Final = 2
_MOST: Final = 5


class FolderUpstream:
    """Files of JSON lines that writers write, and a flow reads in place of a source of its user's."""

    def __init__(self, name: str, source: FileSource, folder: Folder, clock: VirtualClock, *, seed: int) -> None:
        if source.schema is None:
            raise ColumnsNotDeclared(source=name)
        self.acknowledges = False
        self.overtaken = False
        self.whole = True
        self.made_anew = 0
        self.name: Final = name
        self.schema: Final = source.schema
        self._user: Final = source
        self._folder: Final = folder
        self._clock: Final = clock
        self._seed: Final = seed
        self._columns: Final = without_metadata(source.schema, metadata=source.metadata)
        check_columns(name, self._columns)
        self._paths = [self._path(number) for number in range(_FILES)]
        self._ends: Final[dict[str, list[int]]] = {}
        """Where the lines of each file end, the torn one too."""
        self._torn: Final[dict[str, bytes]] = {}
        self._keys: Final[dict[str, str]] = {}
        """The partition that a file is known as, and the other way round."""
        self._files: Final[dict[str, str]] = {}

    def _path(self, number: int) -> str:
        """Return a path that the source's pattern has."""
        found = self._user.path.replace("**/", "")
        for wildcard in ("*", "?"):
            found = found.replace(wildcard, str(number))
        return found

    def source(self, meet: Callable[[str], None]) -> MetSource:
        """Return the source, as one driver has it."""
        return MetSource(read_from(self._user, self._folder), meet)

    def set_away(self, away: bool) -> None:  # noqa: FBT001
        """Take the folder away, or bring it back."""
        self._folder.away = away

    def learn(self, partition: str, details: Mapping[str, Any]) -> str:
        """Return the partition, and know which file it is."""
        found = {self._folder.stat(path).st_ino: path for path in self._folder.paths}
        path = found[details["ino"]]
        self._keys[path], self._files[partition] = partition, path
        return partition

    def there(self) -> dict[str, int]:
        """Return the end of the complete lines of each file that has some, by its path where it is not known yet."""
        return {self._keys.get(path, path): end for path in self._ends if (end := self._complete(path)) > 0}

    def end(self, place: str) -> int:
        """Return the end of the complete lines of a file."""
        return self._complete(self._files[place])

    def _complete(self, path: str) -> int:
        ends = self._ends[path]
        return ends[-1] if path not in self._torn else ends[-2] if len(ends) > 1 else 0

    def start(self, place: str) -> int:  # noqa: ARG002 - files lose nothing at their beginning
        """Return 0."""
        return 0

    def told(self) -> Mapping[str, int]:
        """Nothing: files take no acknowledgements."""
        return {}

    def blurred(self, place: str, lower: int, upper: int) -> bool:  # noqa: ARG002
        """False: nothing is taken out of a file."""
        return False

    def rows(self, place: str, lower: int, upper: int) -> list[pa.RecordBatch]:
        """Return the rows of a range."""
        path = self._files[place]
        ends = self._ends[path]
        first, last = (bisect_left(ends, position) + (position > 0) for position in (lower, upper))
        if first >= last:
            return []
        found = made(self._columns, seed=self._seed, shard=self._paths.index(path), lower=first, upper=last)
        if not self._user.metadata:
            return [found]
        begins = pa.array([0, *ends][first:last], pa.int64())
        names = pa.array([place] * (last - first), pa.string())
        return [pa.RecordBatch.from_arrays([*found.columns, names, begins], schema=self.schema)]

    def act(self, act: Act) -> None:
        """Do what a writer does. number: how many lines, and by that to which file."""
        if self._folder.away:
            return
        random = Random(f"{self._seed} {act.at} {act.what}")  # noqa: S311 - nothing is secret here
        path = random.choice(self._paths)
        match act.what:
            case "append":
                self._append(path, act.number)
            case "transact":
                self._append(path, act.number, torn=random.randrange(1, 9))
            case "grow" if len(self._paths) < _MOST and self._path(0) != self._path(1):
                self._paths.append(self._path(len(self._paths)))

    def _append(self, path: str, count: int, *, torn: int = 0) -> None:
        """Write lines, the last one without its last bytes, which the next writer brings."""
        ends = self._ends.setdefault(path, [])
        first, data = len(ends), self._torn.pop(path, b"")
        rows = made(self._columns, seed=self._seed, shard=self._paths.index(path), lower=first, upper=first + count)
        for row in rows.to_pylist():
            line = (json.dumps(row, default=str) + "\n").encode()
            ends.append((ends[-1] if ends else 0) + len(line))
            data += line
        if torn:
            self._torn[path] = data[-torn:]
            data = data[:-torn]
        self._folder.append(path, data, at=self._clock.now())
