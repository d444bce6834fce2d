"""A table by key is a dictionary, whatever the order of arrival, the batches, tasks, commits and leaves."""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, WriterProperties
from hypothesis import given
from hypothesis import strategies as st
from tests.depth import deep

from tidegauge.errors.sinks import EpochReplaced
from tidegauge.leftout import LEFT, Mark
from tidegauge.sinks import DeltaSink, OutputId, StagedFile, staging
from tidegauge.sinks.delta import bykey, packing
from tidegauge.sinks.delta.leaves import DeltaLeaves
from tidegauge.sinks.keyed import merging, runs
from tidegauge.sinks.keyed.planning import Sizes, clusters
from tidegauge.sinks.protocol import Volume, job_mark
from tidegauge.sinks.vectors import deleted, path_of

OUTPUT = OutputId("shop", "users", "a" * 32)
KEYS = 12
SMALL = Sizes(leaf_bytes=1 << 30, leaf_rows=3, task_bytes=1, part_bytes=1 << 20, part_rows=2, few_rows=0)
"""So small that leaves split, tasks have parts, and parts have parts."""
KEPT = Mark(("value",)).encode()
GROUPS = WriterProperties(max_row_group_size=2)
PACKED_ROWS = 12
"""But leaves are packed into larger ones."""
TINY = replace(SMALL, part_bytes=64)
"""And every row group is a large one."""


@dataclass(frozen=True)
class KeyKind:
    """A type of key, and its values."""

    types: Sequence[Any]
    value: Callable[[int], tuple[Any, ...]]
    apart: bool = True
    """Whether the log's statistics tell the values apart."""

    @property
    def names(self) -> list[str]:
        return [f"k{at}" for at in range(len(self.types))]


START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
KEY_KINDS: Mapping[str, KeyKind] = {
    "long": KeyKind([pa.int64()], lambda n: (n - 5,)),
    "text": KeyKind([pa.string()], lambda n: ("aéz\x00𝄞\uffff"[n % 6] * (n // 6 + 1),)),
    "long text": KeyKind([pa.string()], lambda n: ("x" * 80 + str(n),), apart=False),
    "two": KeyKind([pa.string(), pa.int32()], lambda n: ("ab"[n % 2], n // 2), apart=False),
    "day": KeyKind([pa.date32()], lambda n: (dt.date(1969, 12, 28) + dt.timedelta(days=n),)),
    "instant": KeyKind([pa.timestamp("us", tz="UTC")], lambda n: (START + dt.timedelta(microseconds=n),)),
    "decimal": KeyKind([pa.decimal128(38, 2)], lambda n: (Decimal(n - 5) * 10**30 + Decimal("0.25"),)),
    "bytes": KeyKind([pa.binary()], lambda n: (bytes([255 - n]) * 2,)),
    "boolean": KeyKind([pa.bool_(), pa.int8()], lambda n: (n % 2 == 0, n // 2), apart=False),
}


@dataclass(frozen=True)
class Change:
    """What becomes of a key."""

    key: int
    op: str
    """Of an operation; or "keep", an update that leaves out the value where the key has one."""
    value: int | None


@dataclass
class Bench:
    """A table by key, and the dictionary that it should be."""

    folder: str
    kind: KeyKind
    operating: bool = True
    nan: bool = False
    """Whether a column has a NaN, so that the log has no statistics."""
    vectors: bool = False
    """Whether the table has deletion vectors."""
    random: random.Random = field(default_factory=random.Random)
    wanted: dict[int, tuple[int | None, int]] = field(default_factory=dict)
    states: list[dict[int, tuple[int | None, int]]] = field(default_factory=list)
    readable: list[bool] = field(default_factory=list)
    upper: int = 0

    def __post_init__(self) -> None:
        order = "_offset" if self.operating else "n"
        self.sink = self.made(order)
        fields = [*zip(self.kind.names, self.kind.types, strict=True), ("value", pa.int64()), ("f", pa.float64())]
        if self.operating:
            fields += [("_partition", pa.string()), ("_offset", pa.int64()), ("_op", pa.string())]
        else:
            fields += [("n", pa.int32())]
        self.schema = pa.schema([*fields, ("_epoch", pa.int64())])
        self.table = self.sink.open(OUTPUT)

    def made(self, order: str) -> Any:
        return DeltaSink(
            f"{self.folder}/t",
            envelope="upsert",
            key=self.kind.names,
            order=order,
            deletion_vectors=self.vectors,
        )

    def rows(self, epoch: int, changes: Sequence[Change]) -> list[dict[str, Any]]:
        """Return the rows of an epoch, in the order in which they happened, as the dictionary takes them in, too."""
        found = []
        for at, change in enumerate(changes):
            kept = change.op == "keep" and self.wanted.get(change.key, (None,))[0] is not None  # no null is left out
            op = change.op if self.operating and change.op != "keep" else "update"
            if kept:
                self.wanted[change.key] = self.wanted[change.key][0], epoch
            elif op == "delete":
                self.wanted.pop(change.key, None)
            elif op != "before":
                self.wanted[change.key] = change.value, epoch
            row = dict(zip(self.kind.names, self.kind.value(change.key), strict=True))
            value, mark = (None, KEPT) if kept else (change.value, None)
            row |= {"value": value, LEFT: mark, "f": float("nan") if self.nan else 0.5, "_epoch": epoch}
            row |= {"_partition": "p", "_offset": at, "_op": op} if self.operating else {"n": at}
            found.append(row)
        self.states.append(dict(self.wanted))
        return found

    def stage(self, rows: list[dict[str, Any]]) -> list[StagedFile]:
        """Stage rows in any order, in tasks and batches of any size."""
        self.random.shuffle(rows)
        job, files = job_mark(OUTPUT.incarnation) + uuid.uuid4().hex[:16], list[StagedFile]()
        for number, part in enumerate(_dealt(rows, self.random)):
            stager = self.sink.stage(self.schema, job=job, task=number)
            for batch in _dealt(part, self.random):
                marked = any(row.get(LEFT) for row in batch)
                columns = self.schema.append(pa.field(LEFT, pa.string())) if marked else self.schema
                stager.write(pa.RecordBatch.from_pylist(batch, schema=columns))
            files += [StagedFile.decode(file.encode()) for file in stager.close()]
        return files

    def commit(self, span: Sequence[Sequence[Change]]) -> None:
        lower, upper = self.upper, self.upper + len(span)
        rows = [row for at, changes in enumerate(span) for row in self.rows(lower + at, changes)]
        told = [row["_epoch"] for row in rows if row.get("_op") != "before"]
        inside = range(min(told), max(told)) if told else range(0)
        self.readable += [epoch not in inside for epoch in range(lower, upper)]
        files = self.stage(rows)
        self.table.commit(lower, upper, self.schema, files, write=uuid.uuid4().hex)
        self.upper = upper

    def shown(self, *, as_of: int | None = None) -> dict[tuple[Any, ...], tuple[int | None, int]]:
        files = self.table.files(as_of=as_of)
        found: dict[tuple[Any, ...], tuple[int | None, int]] = {}
        for row in (row for file, uri in zip(files, self.table.uris(files), strict=True) for row in left(file, uri)):
            if as_of is not None and row["_epoch"] > as_of:
                continue
            key = tuple(row[name] for name in self.kind.names)
            assert key not in found, f"{key} is there twice"
            found[key] = row["value"], row["_epoch"]
        return found

    def named(self, state: dict[int, Any]) -> dict[tuple[Any, ...], Any]:
        return {self.kind.value(key): said for key, said in state.items()}

    def check(self, *, since: int = 0) -> None:
        """See that the table is the dictionary, now and as of each epoch from `since` on that can be told."""
        assert self.shown() == self.named(self.wanted)
        assert self.table.upper == self.sink.open(OUTPUT).upper == self.upper
        if self.upper:
            assert self.table.volume() == Volume.of(self.table.files())
        for epoch in range(since, self.upper):
            if self.readable[epoch]:
                assert self.shown(as_of=epoch) == self.named(self.states[epoch]), f"as of {epoch}"
            else:
                with pytest.raises(EpochReplaced):
                    self.table.files(as_of=epoch)

    def litter(self) -> set[str]:
        """Return what is in the folder and is not named by the log."""
        live = {Path(file).name for file in DeltaTable(self.sink.path).file_uris()}
        history = {name for name in os.listdir(self.sink.path) if name.startswith("part-")}
        old = {
            Path(file).name
            for version in range(DeltaTable(self.sink.path).version())
            for file in DeltaTable(self.sink.path, version=version).file_uris()
        }
        staged = {name for _, _, names in os.walk(f"{self.sink.path}/_staged") for name in names}
        with suppress(FileNotFoundError):
            staged |= {f"_vectors/{name}" for name in os.listdir(f"{self.sink.path}/_vectors")} - self.named_vectors()
        return (history - live - old) | staged

    def named_vectors(self) -> set[str | None]:
        """Return the files of vectors that the log has ever named."""
        entries = Path(self.sink.path, "_delta_log").glob("*.json")
        actions = [json.loads(line) for entry in entries for line in entry.read_text().splitlines()]
        adds = [action["add"] for action in actions if "add" in action]
        return {path_of(add["deletionVector"]) for add in adds if add.get("deletionVector")}


def left(file: StagedFile, uri: str) -> list[dict[str, Any]]:
    """Return the rows of a file that are left, in a way that is slow and plain."""
    dead = set(deleted(file.deletions).tolist())
    rows = [row for at, row in enumerate(pq.ParquetFile(uri).read().to_pylist()) if at not in dead]
    assert len(rows) == file.rows
    return rows


def _dealt(rows: list[Any], chance: random.Random) -> Iterator[list[Any]]:
    start = 0
    while start < len(rows):
        size = chance.randint(1, 6)
        yield rows[start : start + size]
        start += size


@pytest.fixture(autouse=True, scope="module")
def small() -> Iterator[None]:
    """Everything is small: runs, row groups, leaves, tasks, parts."""
    with (
        mock.patch.object(runs, "RUN_ROWS", 5),
        mock.patch.object(runs, "GROUP_ROWS", 2),
        mock.patch.object(staging, "GROUP_ROWS", 2),
        mock.patch.object(merging, "_EVERY", 2),
        mock.patch.object(merging, "_BATCH", 3),
    ):
        yield


CHANGE = st.builds(
    Change,
    st.integers(0, KEYS - 1),
    st.sampled_from(["insert", "update", "update", "delete", "before", "keep", "keep"]),
    st.none() | st.integers(0, 9),
)
EPOCH = st.lists(CHANGE, max_size=10)
SPAN = st.lists(EPOCH, min_size=1, max_size=3)
OTHERS = st.sampled_from(
    ["nothing", "nothing", "pack", "pack", "compact", "z-order", "checkpoint", "reopen", "vacuum"]
)


@pytest.mark.parametrize("kind", KEY_KINDS)
@deep(25)
@given(
    spans=st.lists(st.tuples(SPAN, OTHERS), min_size=1, max_size=6),
    operating=st.booleans(),
    nan=st.booleans(),
    sizes=st.sampled_from([SMALL, TINY]),
    vectors=st.booleans(),
    dead=st.sampled_from([0.0, 0.4, 0.7, 1.0]),
    inline=st.sampled_from([0, 512]),
    chance=st.randoms(use_true_random=False),
)
def test_t57_t59_a_table_is_the_dictionary_of_its_changes(
    kind: str,
    spans: list[tuple[list[list[Change]], str]],
    operating: bool,
    nan: bool,
    sizes: Sizes,
    vectors: bool,
    dead: float,
    inline: int,
    chance: random.Random,
) -> None:
    sizes = replace(sizes, most_dead=dead)
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(bykey, "SIZES", sizes),
        mock.patch("tidegauge.sinks.vectors._INLINE", inline),
        mock.patch.object(packing, "SIZES", replace(sizes, leaf_rows=PACKED_ROWS)),
    ):
        bench = Bench(folder, KEY_KINDS[kind], operating=operating, nan=nan, vectors=vectors, random=chance)
        since, alone = 0, bench.kind.apart
        for span, others in spans:
            bench.commit(span)
            assert bench.litter() == set()
            if alone and not vectors:  # every leaf is a cluster
                version = DeltaTable(bench.sink.path).version()
                found = DeltaLeaves(bench.sink.path, bench.kind.names).at(version)
                assert all(len(one.leaves) <= 1 for one in clusters(found.values()))
                assert all(leaf.file.rows <= PACKED_ROWS for leaf in found.values())
            alone = alone and others not in ("compact", "z-order")
            since = bench.upper - 1 if others == "vacuum" else since
            _others(bench, others)
            bench.check(since=since)


def test_a_table_with_vectors_marks_rows_and_rewrites_what_is_small_or_mostly_dead(tmp_path: Path) -> None:
    sizes = Sizes(few_rows=0, most_dead=0.5)
    with mock.patch.object(bykey, "SIZES", sizes), mock.patch.object(packing, "SIZES", sizes):
        bench = Bench(str(tmp_path), KEY_KINDS["long"], operating=False, vectors=True)
        bench.commit([[Change(n, "update", 0) for n in range(KEYS)]])
        [first] = bench.table.files()
        bench.commit([[Change(n, "update", 1) for n in range(5)]])
        marked, added = bench.table.files()
        assert (marked.path, marked.rows, added.rows) == (first.path, KEYS - 5, 5)
        assert deleted(marked.deletions).tolist() == [0, 1, 2, 3, 4]
        bench.commit([[Change(n, "update", 2) for n in range(3, 8)]])
        after = bench.table.files()
        assert first.path not in {file.path for file in after}  # 8 of its 12 rows are gone by now
        assert [file.rows for file in after if file.path == added.path] == [3]
        bench.check()
        pack(bench)
        assert not any(file.deletions for file in bench.table.files())
        bench.check()


def pack(bench: Bench) -> None:
    """Pack small leaves, as maintenance does."""
    table, mark = bench.sink.maintain(OUTPUT), job_mark(OUTPUT.incarnation)
    for _ in range(3 if bench.vectors else 1):
        for some in table.plan():
            files = table.stage(some, job=mark + uuid.uuid4().hex[:16])
            assert len(files) < len(some.files) or some.files[0].deletions
            assert table.commit(some, files, write=uuid.uuid4().hex) is not None
    assert table.plan() == []


def _others(bench: Bench, what: str) -> None:
    table = DeltaTable(bench.sink.path)
    match what:
        case "pack":
            pack(bench)
        case "compact":
            table.optimize.compact(writer_properties=GROUPS)
        case "z-order":
            if table.file_uris():
                table.optimize.z_order(["value"], writer_properties=GROUPS)
        case "checkpoint":
            table.create_checkpoint()
        case "vacuum":
            table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
        case "reopen":
            bench.table = bench.sink.open(OUTPUT)
        case _:
            pass
