"""The lake: the tables of a simulation, in memory. It outlives the drivers that write to it.

Invariants. A commit happens as a whole, between two calls of the drivers' hooks. Committed rows stay: the
rows of files that were taken out too, so that every earlier epoch can be read. Staged rows are in no answer. When all
rows change places with others, an earlier epoch is read from the new ones.

>>> lake = Lake()
>>> table = lake.tables.setdefault("orders", LakeTable())
>>> rows = pa.record_batch({"id": [7], "_epoch": [0]})
>>> file = StagedFile("a", rows=1, bytes=16, first_epoch=0, last_epoch=0)
>>> table.staged["a"] = LakeFile(file, (rows,))
>>> lake.rows("orders").num_rows
0
>>> table.append(LakeCommit(OutputId("shop", "orders", "0" * 32), 0, 3, "write-1", (file,)), rows.schema)
>>> lake.rows("orders").to_pylist(), table.upper, lake.at(2)["orders"].num_rows
([{'id': 7, '_epoch': 0}], 3, 1)

A table is moved away, as with the disk that it is on, by `lake.tables.pop`, and comes back by putting it there again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from tidegauge.errors.command import OutputIsBehind
from tidegauge.errors.sinks import EpochReplaced
from tidegauge.evolution import filled
from tidegauge.lazy import library
from tidegauge.operations import BEFORE, DELETE, OP
from tidegauge.reclock.columns import EPOCH
from tidegauge.remap.history import Link
from tidegauge.sinks.protocol import OutputId, StagedFile, Volume

if TYPE_CHECKING:
    from tidegauge.looking.view import View

__all__ = ["Lake", "LakeCommit", "LakeFile", "LakeTable", "applied", "uri_of"]

pc: Final = library("pyarrow.compute")

_NO_COLUMNS: Final = pa.schema([EPOCH])


class LakeFile(NamedTuple):
    """A file that was staged in whole, with its rows."""

    file: StagedFile
    batches: tuple[pa.RecordBatch, ...]


@dataclass(frozen=True, slots=True)
class LakeCommit:
    """A commit: whose it is, its epochs `[lower, upper)`, the attempt, the files it put in and took out, its history.

    It has no epochs of its own where `lower == upper`.
    """

    output: OutputId
    lower: int
    upper: int
    write: str
    put: tuple[StagedFile, ...]
    taken: tuple[StagedFile, ...] = ()
    digest: str = ""
    links: tuple[Link, ...] = ()


class LakeTable:
    """A table: its commits, its columns (None before the first), and the files staged beside it.

    staged: by path; None for a file that is torn. A task has begun it, and it stays like this when the task dies; or
    it was cut short later. held: the committed files, in commit order. edition: of its rows, "" for the first one.
    made: the one that they were put in with; they may have got another one since. earlier: the commits of rows that
    are gone.
    """

    def __init__(self) -> None:
        self.commits: Final[list[LakeCommit]] = []
        self.earlier: Final[list[LakeCommit]] = []
        self.edition = self.made = ""
        self.staged: Final[dict[str, LakeFile | None]] = {}
        self.held: Final[dict[str, StagedFile]] = {}
        self.schema: pa.Schema | None = None
        self.upper = 0
        self.digest = ""
        self.volume = Volume()
        self._rows: Final[dict[str, tuple[pa.RecordBatch, ...]]] = {}
        self._changes: Final[list[int]] = []

    @property
    def owner(self) -> OutputId | None:
        """Whose it is: of who committed first, None before that."""
        return self.commits[0].output if self.commits else None

    def knows(self, path: str) -> bool:
        """Whether a file of this path is staged, or was ever committed."""
        return path in self.staged or path in self._rows

    def renew(self, commit: LakeCommit, columns: pa.Schema, edition: str) -> None:
        """Make a commit that was checked, which takes out all that is there: its rows are of another edition."""
        self.earlier.extend(self.commits)
        for gone in (self.commits, self.held, self._changes):
            gone.clear()
        self.schema, self.volume = None, Volume()
        self.edition = self.made = edition
        self.append(commit, columns)

    def append(self, commit: LakeCommit, columns: pa.Schema) -> None:
        """Make a commit that was checked: its files are staged, those that it takes out are held.

        columns: those that the table has with it.
        """
        for file in commit.put:
            staged = self.staged.pop(file.path)
            self._rows[file.path] = () if staged is None else staged.batches
        _take_in(self.held, commit)
        if commit.lower < commit.upper:
            self.upper, self.digest = commit.upper, commit.digest
            if commit.taken:
                self._changes.append(len(self.commits))
        self.schema = columns
        self.volume = self.volume + Volume.of(commit.put) - Volume.of(commit.taken)
        self.commits.append(commit)

    def files(self, *, as_of: int | None = None, name: str = "") -> list[StagedFile]:
        """Return the committed files in commit order, as `Table.files` does. Raises `EpochReplaced`."""
        if as_of is None:
            return [*self.held.values()]
        change = next((at for at in self._changes if as_of < self.commits[at].upper - 1), None)
        if change is None:
            return [*self.held.values()]
        if self.commits[change].lower <= as_of:
            raise EpochReplaced(table=name, epoch=as_of)
        held: dict[str, StagedFile] = {}
        for commit in self.commits[:change]:
            _take_in(held, commit)
        return [*held.values()]

    def version_of(self, epoch: int) -> int | None:
        """Return the number of the commit that brought an epoch, None for one that is not held."""
        if not 0 <= epoch < self.upper:
            return None
        before = bisect_right(self.commits, epoch, key=lambda commit: commit.lower)
        return next(at for at in range(before - 1, -1, -1) if epoch < self.commits[at].upper)

    def read(self, paths: Iterable[str]) -> pa.Table:
        """Return the rows of committed files. Raises `FileNotFoundError` for one that never was."""
        columns = self.schema or _NO_COLUMNS
        batches = list[pa.RecordBatch]()
        for path in paths:
            if path not in self._rows:
                raise FileNotFoundError(path)
            batches += self._rows[path]
        return pa.Table.from_batches([filled(batch, columns) for batch in batches], schema=columns)


class Lake:
    """The tables, by name."""

    def __init__(self) -> None:
        self.tables: Final[dict[str, LakeTable]] = {}

    def upper(self, name: str) -> int:
        """Return the first epoch that a table does not hold; 0 where there is none."""
        return self.tables[name].upper if name in self.tables else 0

    def made(self, name: str) -> str:
        """Return the edition that the rows of a table were put in with, "" for the first rows and for none."""
        return self.tables[name].made if name in self.tables else ""

    def rows(self, name: str, as_of: int | None = None) -> pa.Table:
        """Return the rows of a table with their epochs, in commit order.

        as_of: of the epochs up to this one, as they were when it was the last. Raises `EpochReplaced`.
        """
        if (table := self.tables.get(name)) is None:
            return _NO_COLUMNS.empty_table()
        found = table.read(file.path for file in table.files(as_of=as_of, name=name))
        return found if as_of is None else _up_to(found, as_of)

    def tear(self, name: str, whose: Callable[[str], bool]) -> None:
        """Cut short the file of a table that was staged last by one of these jobs."""
        staged = self.tables[name].staged if name in self.tables else {}
        mine = [path for path, file in staged.items() if file is not None and whose(path[16:32])]
        for path in mine[-1:]:
            staged[path] = None

    def at(self, epoch: int) -> dict[str, pa.Table]:
        """Return the rows of all tables as of one epoch. Raises `OutputIsBehind` for a table that lacks it."""
        for name, table in self.tables.items():
            if table.upper <= epoch:
                raise OutputIsBehind(output=name, upper=table.upper, as_of=epoch)
        return {name: self.rows(name, epoch) for name in self.tables}

    def batches(self, uri: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a committed file. Raises `FileNotFoundError` for one that is not there."""
        name, _, path = uri.removeprefix(_SCHEME).rpartition(_PART)
        if name not in self.tables:
            raise FileNotFoundError(uri)
        yield from self.tables[name].read([path]).to_batches()

    def read(self, view: View) -> pa.Table:
        """Return the rows that a reader sees who was told to read these files."""
        found = list[pa.Table]()
        for uri in view.uris:
            name, _, path = uri.removeprefix(_SCHEME).rpartition(_PART)
            found.append(self.tables[name].read([path]))
        return _up_to(pa.concat_tables(found), view.epoch) if found else view.schema.empty_table()


_SCHEME: Final = "lake:"
_PART: Final = "#"


def uri_of(name: str, path: str) -> str:
    """Return what `Lake.read` finds a file by."""
    return f"{_SCHEME}{name}{_PART}{path}"


def applied(rows: pa.Table, key: Sequence[str]) -> Mapping[tuple[Any, ...], Mapping[str, Any]]:
    """Return the table by key that operations make: each puts its row there or takes it away, epoch by epoch.

    A row without an operation takes the place of the one before it.

    >>> steps = pa.table({"id": [1, 2, 1], "n": [5, 6, None], "_op": ["insert", "insert", "delete"]})
    >>> steps = steps.append_column("_epoch", [[0, 0, 1]])
    >>> applied(steps, ["id"])
    {(2,): {'id': 2, 'n': 6, '_epoch': 0}}
    """
    found: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    for row in sorted(rows.to_pylist(), key=lambda row: row[EPOCH.name]):
        of, operation = tuple(row[name] for name in key), row.pop(OP, None)
        if operation == DELETE:
            found.pop(of, None)
        elif operation != BEFORE:
            found[of] = row
    return found


def _take_in(held: dict[str, StagedFile], commit: LakeCommit) -> None:
    for file in commit.taken:
        del held[file.path]
    held.update((file.path, file) for file in commit.put)


def _up_to(rows: pa.Table, epoch: int) -> pa.Table:
    return rows.filter(pc.less_equal(rows.column(EPOCH.name), epoch))
