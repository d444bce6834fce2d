"""The writers of a folder: lines at the end of files, torn ones, logs that are rotated, and files that come late.

A source names a file by how it began when it was seen first, which is for the driver to say. So a check `learn`s from
the binding's details which file a partition is; where its lines begin and end, the writers know.

    renamed      the log goes on under another name, where a torn line gets its end; the next lines begin another
    copied       the log goes on in a copy that the pattern names, and its inode begins anew, empty
    late         a file comes into the folder that is older than those already read
    unstamped    a file grows, and its modification time stays
    saved        another file takes its place that begins with all its lines, as the file that an editor writes
    cut          the log begins anew in its inode, and its lines are nowhere; or its torn line is taken back
    replaced     another file takes its place, and its lines are nowhere
    deleted      its lines are nowhere, unless the file comes back later

What may do harm is kept in `harms`, for `harms.FileLaws` to judge.

Invariant: no file is two partitions, or its lines would come twice. Every line that is somewhere has to arrive, if
the pattern names its file, or if it had been seen before the file was given a name which the pattern does not have.

>>> from tidegauge.sources import FileSource, Json
>>> from tidegauge.sources.file.identity import digested
>>> source = FileSource("/landing/*.jsonl", format=Json("id long"))
>>> upstream = FolderUpstream("orders", source, Folder(), VirtualClock(), seed=1)
>>> upstream.act(Act(0.5, "append", "orders", 3))
>>> place = upstream.learn("p", {"ino": 1, "head": 0, "digest": digested(b"")})
>>> [batch.num_rows for batch in upstream.rows(place, 0, upstream.end(place))]
[3]
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from random import Random
from typing import Any, Final

import pyarrow as pa

from tidegauge.errors.simulable import ColumnsNotDeclared
from tidegauge.errors.sources import UnreadableRecord
from tidegauge.sources import FileSource
from tidegauge.sources.metadata import without_metadata
from tidegauge.sources.protocol import BadRecord
from tidegauge.testing.simulation.clock import VirtualClock
from tidegauge.testing.simulation.ledger import Broken
from tidegauge.testing.simulation.plan import Act
from tidegauge.testing.simulation.upstream.counterpart import MetSource
from tidegauge.testing.simulation.upstream.folder import Folder, in_memory, read_from
from tidegauge.testing.simulation.writers.values import check_columns, made
from tidegauge.testing.simulation.writers.written import BAD, Harm, HarmKind, WrittenFile

__all__ = ["FolderUpstream"]

_FILES: Final = 2
_MOST: Final = 5
_LATE: Final = 16
"""Files that writers write to, and those that come late, at most."""
_WHY: Final = "not one JSON object"
_ZERO: Final = datetime(1970, 1, 1, tzinfo=UTC)


class FolderUpstream:
    """Files of JSON lines that writers write, and a flow reads in place of a source of its user's."""

    def __init__(self, name: str, source: FileSource, folder: Folder, clock: VirtualClock, *, seed: int) -> None:
        if source.schema is None:
            raise ColumnsNotDeclared(source=name)
        self.acknowledges = False
        self.overtaken = False
        self.made_anew = 0
        self.spoilt = False
        self.name: Final = name
        self.schema: Final = source.schema
        self._user: Final = in_memory(source)
        self._folder: Final = folder
        self._clock: Final = clock
        self._seed: Final = seed
        self._columns: Final = without_metadata(source.schema, metadata=source.metadata)
        check_columns(name, self._columns)
        self._paths = [self._path(number) for number in range(_FILES)]
        self._late = _MOST
        self._files: Final[list[WrittenFile]] = []
        self._logs: Final[dict[str, WrittenFile]] = {}
        """The file that is written to under a name at present."""
        self._renamed: Final[dict[str, WrittenFile]] = {}
        """The one that was there before, while it has a torn line."""
        self._begun: Final[Counter[str]] = Counter()
        self._known: Final[dict[str, WrittenFile]] = {}
        """The file that a partition is."""
        self.harms: Final[list[Harm]] = []
        self.said: Final[list[str]] = []
        """What happened to files, in the words above."""
        self.going_on = False
        """Whether the flow goes on without lost lines, whatever its user wrote."""

    def _path(self, number: int) -> str:
        """Return a path that the source's pattern has."""
        found = self._user.path.replace("**/", "")
        for wildcard in ("*", "?"):
            found = found.replace(wildcard, str(number))
        return found

    @property
    def whole(self) -> bool:
        """Whether the folder is there."""
        return not self._folder.away

    def source(self, meet: Callable[[str], None]) -> MetSource:
        """Return the source, as one driver has it."""
        user = replace(self._user, on_data_loss="gap") if self.going_on else self._user
        return MetSource(read_from(user, self._folder), meet)

    def set_away(self, away: bool) -> None:  # noqa: FBT001
        """Take the folder away, or bring it back."""
        self._folder.away = away

    def learn(self, partition: str, details: Mapping[str, Any]) -> str:
        """Return the partition, and know which file it is. Raises `Broken`.

        If nothing is known of how it begins, it was bound only because it is gone, and has no lines for anybody.
        """
        found = [file for file in self._files if file.fits(details)]
        if not int(details["head"]) and (harmed := [harm.file for harm in self.harms if harm.file in found]):
            self._known[partition] = max(harmed, key=lambda file: file.most)
            return partition
        new = next((file for file in found if file.partition in (None, partition)), None)
        if new is None:
            said = f"{self.name}: partition {partition} is {details}, which {[f.partition for f in found]} are"
            raise Broken("a file is one partition", said)
        new.partition, self._known[partition] = partition, new
        return partition

    def forget(self, place: str) -> None:
        """Know of no partition that a file is: it may be bound as another one."""
        file = self._known.pop(place)
        file.partition = None if file.partition == place else file.partition

    def there(self) -> dict[str, int]:
        """Return the end of the lines that have to arrive of each file, by its path where it is not known yet.

        Without those whose name the pattern does not name: lines that were written and rotated out of its sight
        between two looks are not seen. A renamed file is still found by its inode, once it is bound.
        """
        return {
            file.partition or file.path: due
            for file in self._files
            if (due := self._due(file)) and (file.partition or self._is_named(file.path))
        }

    def _due(self, file: WrittenFile) -> int:
        if file.gone:
            return 0
        return file.complete if file.due is None else file.upto(min(file.due, file.complete))

    def _is_named(self, path: str) -> bool:
        """Whether the source's pattern has a name that a file of it may get in its folder."""
        return fnmatchcase(PurePosixPath(path).name, PurePosixPath(self._user.path).name)

    def end(self, place: str) -> int:
        """Return the end of the complete lines of a file; of one that is gone, of all that it had."""
        file = self._known[place]
        return file.most if file.gone or file.partition != place else file.complete

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
        file = self._known[place]
        first, last = file.lines(lower, upper)
        if first >= last:
            return []
        lines = zip(file.numbers[first:last], [0, *file.ends][first:last], strict=True)
        good = {number: begin for number, begin in lines if number != BAD}
        if not good:
            return []
        numbers = [*good]
        found = self._made(file, numbers[0], numbers[-1] + 1).take(pa.array([n - numbers[0] for n in numbers]))
        if not self._user.metadata:
            return [found]
        begins = pa.array(good.values(), pa.int64())
        names = pa.array([place] * len(good), pa.string())
        return [pa.RecordBatch.from_arrays([*found.columns, names, begins], schema=self.schema)]

    def bad(self, place: str, lower: int, upper: int) -> list[BadRecord]:
        """Return the lines of a range that cannot be decoded."""
        file = self._known[place]
        first, last = file.lines(lower, upper)
        lines = zip(file.numbers[first:last], [0, *file.ends][first:last], file.ends[first:last], strict=True)
        return [
            BadRecord(place, begin, bytes(file.data[begin:end]).removesuffix(b"\n"), UnreadableRecord.code, _WHY)
            for number, begin, end in lines
            if number == BAD
        ]

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
            case "spoil":
                self._spoil(path, act.number)
            case "rotate":
                self._rotate(random, path, act.number)
            case "save":
                self._save(random, act.number)
            case "truncate":
                self._truncate(random, path)
            case "replace":
                self._replace(random, act.number)

    def _made(self, file: WrittenFile, lower: int, upper: int) -> pa.RecordBatch:
        return made(self._columns, seed=self._seed, shard=file.shard, lower=lower, upper=upper)

    def _append(self, path: str, count: int, *, torn: int = 0, at: datetime | None = None) -> None:
        """Write lines, the last one without its last bytes, which the next writer brings."""
        at = at or self._clock.now()
        if (renamed := self._renamed.pop(path, None)) is not None:
            self._write(renamed, at=at)
        if (file := self._logs.get(path)) is None:
            file = self._logs[path] = self._begin(path)
        self._add(file, count)
        self._write(file, torn=torn, at=at)

    def _spoil(self, path: str, number: int) -> None:
        """Write a line that is no JSON to a log, behind its torn one, where there is a log."""
        if (file := self._logs.get(path)) is not None:
            self.spoilt = True
            file.add([f"spoilt {number}\n".encode()], bad=True)
            self._write(file, at=self._clock.now())

    def _add(self, file: WrittenFile, count: int) -> None:
        rows = self._made(file, file.made, file.made + count)
        file.add([(json.dumps(row, default=str) + "\n").encode() for row in rows.to_pylist()])

    def _begin(self, path: str) -> WrittenFile:
        """Return the next file of a name. Its rotated name is no other's: it has a number before its extension."""
        self._begun[path] += 1
        name = PurePosixPath(path)
        rotated = str(name.with_name(f"{name.stem}-{self._begun[path]}{name.suffix}"))
        file = WrittenFile(shard=len(self._files), path=path, rotated=rotated)
        self._files.append(file)
        return file

    def _write(self, file: WrittenFile, *, torn: int = 0, at: datetime) -> None:
        """Write what a file has to get, but for its last bytes."""
        self._folder.append(file.path, file.write(len(file.rest) - torn), at=at)
        file.inodes.add(self._folder.stat(file.path).st_ino)

    # How logs are rotated, and what else happens to files.

    def _rotate(self, random: Random, path: str, number: int) -> None:
        """Rotate a log, or do something else that loses nothing."""
        now, file = self._clock.now(), self._logs.get(path)
        match random.choice(("renamed", "renamed", "copied", "copied", "late", "unstamped")):
            case "late" if self._late < _LATE and self._path(0) != self._path(1):
                self._append(self._path(self._late), number % 7 + 1, at=now - timedelta(minutes=number))
                self.said.append(f"late {self._path(self._late)}")
                self._late += 1
            case "renamed" if file is not None:
                self._rename(path, file)
                if random.random() < 0.5:
                    self._folder.append(path, b"", at=now)
            case "copied" if file is not None:
                self._copy(path, file, now)
            case "unstamped" if file is not None:
                self.said.append(f"unstamped {path}")
                modified = self._folder.stat(path).st_mtime_ns
                self._append(path, number % 7 + 1, at=_ZERO + timedelta(microseconds=modified // 1000))
            case _:
                pass

    def _rename(self, path: str, file: WrittenFile) -> None:
        """Rename a log. Its writer has it open, and ends its torn line there before he opens another."""
        file.path = file.rotated
        self.said.append(f"renamed {path} to {file.path}")
        if not self._is_named(file.path):
            self._harm(file, "hidden", inode=self._folder.stat(path).st_ino)
        self._folder.rename(path, file.path)
        del self._logs[path]
        if file.rest:
            self._renamed[path] = file

    def _copy(self, path: str, file: WrittenFile, now: datetime) -> None:
        """Copy a log, and cut it off, while nobody writes to it. Out of sight, nobody looks for unseen lines."""
        self._write(file, at=now)
        file.path = file.rotated
        self.said.append(f"copied {path} to {file.path}, and cut")
        if not self._is_named(file.path):
            self._harm(file, "hidden")
        self._put(file, now)
        self._folder.shrink(path, 0, at=now)
        del self._logs[path]

    def _put(self, file: WrittenFile, now: datetime) -> None:
        """Put another file with all bytes of this one under its name."""
        self._folder.replace(file.path, bytes(file.data), at=now)
        file.inodes.add(self._folder.stat(file.path).st_ino)

    def _save(self, random: Random, number: int) -> None:
        """Save a file anew, with its torn line complete and perhaps with more lines."""
        files = [file for file in self._files if not file.gone and self._is_named(file.path)]
        if not files:
            return
        file = random.choice(files)
        self._add(file, number % 3)
        file.write()
        self.said.append(f"saved {file.path}")
        if file.partition is None:
            self._harm(file, "saved")
        self._put(file, self._clock.now())

    def _truncate(self, random: Random, path: str) -> None:
        """Cut a log off, or take its torn line back."""
        if (file := self._logs.get(path)) is None:
            return
        if file.rest and random.random() < 0.5:
            self._harm(file, "torn")
            self.said.append(f"took the torn line of {path} back")
            self._folder.shrink(path, file.take_back(), at=self._clock.now())
        else:
            self._harm(file, "cut")
            self.said.append(f"cut {path}")
            self._folder.shrink(path, 0, at=self._clock.now())
            self._lose(file)

    def _replace(self, random: Random, number: int) -> None:
        """Delete a file, or put another one in its place; or bring a deleted one back."""
        now = self._clock.now()
        gone = [file for file in self._files if _can_come_back(file) and self._is_free(file.path)]
        files = [file for file in self._files if not file.gone]
        what = random.choice(("deleted", "replaced", "back" if gone else "deleted"))
        if what == "back":
            self._bring(random.choice(gone), now)
            return
        if not files:
            return
        file = random.choice(files)
        self._write(file, at=now)
        self._harm(file, "gone")
        other = self._logs.get(file.path) is file
        self._lose(file)
        self._folder.remove(file.path)
        self.said.append(f"{what} {file.path}")
        if what == "replaced" and self._is_named(file.path):
            new = self._begin(file.path)
            self._add(new, number % 5 + 1)
            new.write()
            self._put(new, now)
            if other:
                self._logs[new.path] = new

    def _harm(self, file: WrittenFile, how: HarmKind, *, inode: int = 0) -> None:
        self.overtaken = self.overtaken or how != "hidden"
        self.harms.append(Harm(file, how, file.partition, len(file.data), inode))

    def _lose(self, file: WrittenFile) -> None:
        """Have a file nowhere: nobody writes to it any more."""
        file.gone = True
        for files in (self._logs, self._renamed):
            for path in [path for path, held in files.items() if held is file]:
                del files[path]

    def _is_free(self, path: str) -> bool:
        return not self._folder.lexists(path)

    def bring_back(self) -> None:
        """Bring back all that was lost, as from a copy: under its name, if that is free and was its own."""
        for harm in self.harms:
            if _can_come_back(harm.file) and harm.held < harm.size:
                if harm.how == "cut" or not self._is_free(harm.file.path):
                    harm.file.path = harm.file.rotated
                self._bring(harm.file, self._clock.now())

    def _bring(self, file: WrittenFile, now: datetime) -> None:
        """Bring a file back. Its writer goes on with it, where it has its name."""
        if not self._is_free(file.path):
            return
        file.gone = False
        self.said.append(f"brought {file.path} back")
        self._put(file, now)
        if not self._is_named(file.path):
            self._harm(file, "hidden")
        if file.path in self._paths:
            self._logs[file.path] = file


def _can_come_back(file: WrittenFile) -> bool:
    """Whether a file that is gone may come back: not if the flow may have bound half a line, up to the end it saw."""
    return file.gone and not file.torn
