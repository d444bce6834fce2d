"""The leaves of a Delta table by key: the files that its log names, each with the ends of its keys.

What a commit of changes must know of a table is which of its files can hold a key. The log's statistics say it,
where they are ends for certain: of whole numbers and texts (cut short, they are ends still). Of other types writers
disagree (Spark cuts instants to milliseconds, decimals become floating point numbers), and a file with a NaN in any
column has no ends in the log; then the file's own footer is asked, once. The key is that within a partition: columns
that a table is parted by have one value in a file.

Invariant: `at` gives the files of that version, whatever versions were asked for before. They are listed once, from a
snapshot; from there on the log is followed entry by entry, so a commit costs the changes since the last one.

>>> said = '{"numRecords":2,"minValues":{"n":1,"_epoch":0},"maxValues":{"n":7,"_epoch":3}}'
>>> leaf_of({"path": "a", "size": 9, "stats": said}, ("n",)).ends
Ends(low=(1,), high=(7,))
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.types as pt

from tidegauge.errors.sinks import LeafUnreadable
from tidegauge.lazy import library
from tidegauge.objects.reading import readable
from tidegauge.sinks import vectors
from tidegauge.sinks.columns import EPOCH
from tidegauge.sinks.delta.adds import adds_at, may_have_vectors, taken_in
from tidegauge.sinks.delta.creating import snapshot
from tidegauge.sinks.delta.files import epochs_of
from tidegauge.sinks.delta.head import Action, actions_of, entry, log_read
from tidegauge.sinks.delta.owner import columns_of
from tidegauge.sinks.keyed.keys import Ends, ends_of
from tidegauge.sinks.keyed.planning import TableLeaf
from tidegauge.sinks.layout.values import PartitionValues, parsed, text_of, texts_of
from tidegauge.sinks.location import at, inside
from tidegauge.sinks.protocol import StagedFile

__all__ = ["DeltaLeaves", "leaf_of"]

pq: Final[Any] = library("pyarrow.parquet")


class DeltaLeaves:
    """The leaves of the table in `folder`. Of one thread at a time."""

    def __init__(self, folder: str, key: Sequence[str]) -> None:
        self._folder: Final = folder
        self._log: Final = at(folder) / "_delta_log"
        self._key: Final = tuple(key)
        self._version = -1
        self._sure = False
        """Whether the log's statistics of the key are ends for certain."""
        self._parted: dict[str, Any] = {}
        """The types of the partition columns."""
        self._leaves: dict[str, TableLeaf] = {}
        self._adds: dict[str, Action] | None = None
        """What the log says of each leaf, word for word, where leaves may have deletion vectors."""

    def at(self, version: int) -> Mapping[str, TableLeaf]:
        """Return the leaves of a version by their paths.

        Raises `TableUnavailable`, `LeafUnreadable`.
        """
        with log_read(self._folder):
            if not 0 <= self._version <= version or not self._follow(version):
                self._list(version)
        return self._leaves

    def names(self, version: int) -> set[str]:
        """Return the names of the leaves of a version; see `StagedFile.name`. Raises as `at` does."""
        return {leaf.file.name for leaf in self.at(version).values()}

    def added(self, version: int, path: str) -> Action:
        """Return what the log says of a leaf of a version, word for word. Raises as `at` does."""
        self.at(version)
        with log_read(self._folder):
            if self._adds is None:
                self._adds = adds_at(self._log, version)
        return self._adds[path]

    def _follow(self, version: int) -> bool:
        """Take in the entries up to a version; False where that cannot be done."""
        for later in range(self._version + 1, version + 1):
            try:
                actions = actions_of(entry(self._log, later))
            except FileNotFoundError:
                return False
            if any("metaData" in action or "protocol" in action for action in actions):
                return False  # other columns, perhaps
            for action in actions:
                if "remove" in action:
                    self._leaves.pop(str(action["remove"]["path"]), None)
            for action in actions:
                if "add" in action:
                    leaf = self._leaf(action["add"])
                    self._leaves[leaf.file.path] = leaf
            if self._adds is not None:
                self._adds = taken_in(self._adds, actions)
            self._version = later
        return True

    def _values(self, said: Mapping[str, str | None]) -> PartitionValues:
        """Return the values that an entry has of a partition, as we write them."""
        return tuple((name, text_of(parsed(said.get(name), kind))) for name, kind in self._parted.items())

    @property
    def _asked(self) -> tuple[str, ...]:
        """The columns whose ends the log is asked for."""
        return self._key if self._sure else ()

    def _list(self, version: int) -> None:
        table = snapshot(self._folder, version)
        columns = columns_of(table.schema().to_json())
        kinds = [columns.field(name).type for name in self._key if name in columns.names]
        self._sure = len(kinds) == len(self._key) and all(pt.is_integer(k) or pt.is_string(k) for k in kinds)
        self._parted = {name: columns.field(name).type for name in table.metadata().partition_columns}
        if may_have_vectors(table):
            adds = adds_at(self._log, version)
            leaves = {path: self._leaf(add) for path, add in adds.items()}
            self._version, self._adds, self._leaves = version, adds, leaves
            return
        rows = pa.table(table.get_add_actions(flatten=True))
        texts = [texts_of(rows.column(f"partition.{name}").combine_chunks()) for name in self._parted]
        values = [tuple(zip(self._parted, some, strict=True)) for some in zip(*texts, strict=True)]
        names = [f"{end}.{name}" for name in (*self._asked, EPOCH) for end in ("min", "max")]
        wanted = [name for name in ("path", "size_bytes", "num_records", *names) if name in rows.schema.names]
        found: dict[str, TableLeaf] = {}
        for number, row in enumerate(rows.select(wanted).to_pylist()):
            stats = {
                "numRecords": row.get("num_records"),
                "minValues": {name: row.get(f"min.{name}") for name in (*self._asked, EPOCH)},
                "maxValues": {name: row.get(f"max.{name}") for name in (*self._asked, EPOCH)},
            }
            path, partition = unquote(str(row["path"])), values[number] if values else ()
            leaf = _leaf(path, int(row["size_bytes"]), stats, self._asked, partition)
            found[path] = self._known(leaf)
        self._version, self._adds, self._leaves = version, None, found

    def _leaf(self, add: Action) -> TableLeaf:
        """Return a leaf by what adds it. Its rows are those that are left."""
        leaf = self._known(leaf_of(add, self._asked, self._values(add.get("partitionValues") or {})))
        deletions = vectors.text_of(self._folder, add.get("deletionVector"))
        left = leaf.file.rows - vectors.count_of(deletions)
        return TableLeaf(replace(leaf.file, rows=left, deletions=deletions), leaf.ends)

    def _known(self, leaf: TableLeaf) -> TableLeaf:
        """Return a leaf, with what its file says where the log does not say it."""
        if leaf.ends.low is not None and leaf.file.rows >= 0:
            return leaf
        file = leaf.file
        try:
            with pq.ParquetFile(readable(inside(self._folder, file.path))) as opened:
                ends = leaf.ends if leaf.ends.low is not None else ends_of(opened, self._key)
            rows, first, last = (
                epochs_of(inside(self._folder, file.path))
                if file.rows < 0
                else (file.rows, file.first_epoch, file.last_epoch)
            )
        except (OSError, KeyError, pa.ArrowException) as error:
            if isinstance(error, OSError) and error.errno and not isinstance(error, FileNotFoundError):
                raise  # the disk, which may be back
            detail = " ".join(str(error).split())
            raise LeafUnreadable(path=file.path, table=self._folder, detail=detail) from error
        return TableLeaf(replace(file, rows=rows, first_epoch=first, last_epoch=last), ends)


def leaf_of(add: Mapping[str, Any], key: Sequence[str], partition: PartitionValues = ()) -> TableLeaf:
    """Return a leaf by what an entry says that adds it. Its ends are unknown, or its rows -1, if it does not say.

    key: none, where statistics of the key are not to be believed.
    """
    try:
        stats = json.loads(add.get("stats") or "{}")
    except (ValueError, RecursionError):
        stats = {}
    path, size = str(add["path"]), int(add["size"])
    return _leaf(path, size, stats if isinstance(stats, dict) else {}, key, partition)


def _leaf(
    path: str, size: int, stats: Mapping[str, Any], key: Sequence[str], partition: PartitionValues
) -> TableLeaf:
    lows, highs = stats.get("minValues") or {}, stats.get("maxValues") or {}
    rows, first, last = stats.get("numRecords"), lows.get(EPOCH), highs.get(EPOCH)
    if isinstance(rows, int) and isinstance(first, int) and isinstance(last, int):
        file = StagedFile(path, rows, size, first, last, partition=partition)
    else:
        file = StagedFile(path, -1, size, 0, 0, partition=partition)
    low, high = tuple(_plain(lows.get(name)) for name in key), tuple(_plain(highs.get(name)) for name in key)
    return TableLeaf(file, Ends() if not key or None in low or None in high else Ends(low, high))


def _plain(value: Any) -> Any:
    """Return an end as a plain key value, None where it is not one for certain."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return value if type(value) is int else None
