"""A simulated table behaves as our real ones: whatever two drivers ask of it, it answers as they do.

Where the two real ones differ, as in which of two faults they name first, it is like one of them.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import example, given
from hypothesis import strategies as st
from tests.depth import deep

from tidegauge.errors.base import TidegaugeError
from tidegauge.looking.view import View
from tidegauge.remap.history import NO_HISTORY, History, Link
from tidegauge.sinks import DeltaSink, OutputId, ParquetSink, StagedFile
from tidegauge.sinks.protocol import Volume
from tidegauge.testing.simulation.tables import Lake, SimulatedSink

SCHEMA = pa.schema([("user", pa.string()), ("_epoch", pa.int64())])
TURNED = pa.schema([("_epoch", pa.int64()), ("user", pa.large_string())])
OTHER = pa.schema([("usr", pa.string()), ("_epoch", pa.int64())])
SCHEMAS = (SCHEMA, TURNED, OTHER)

OURS = OutputId("shop", "orders", "a" * 32)
ANOTHER_LIFE = OutputId("shop", "orders", "b" * 32)
STRANGER = OutputId("shop", "clicks", "a" * 32)
DRIVERS = (OURS, OURS, ANOTHER_LIFE)


Held: TypeAlias = tuple[StagedFile, pa.Table]
Rows: TypeAlias = Callable[[Any, Sequence[StagedFile]], pa.Table]


class Step(NamedTuple):
    """A call of a driver. near, far: where a span begins, and how long it is. pick: some of the files."""

    call: str
    who: int
    near: int
    far: int
    pick: int
    timeline: str
    schema: int


CALLS = ["stage"] * 5 + ["commit"] * 6 + ["take out"] * 2 + ["replace"] * 2
CALLS += ["repeat", "discard", "abandon", "tear", "begin", "sweep", "reopen", "look", "vanish", "stranger"]
STEP = st.builds(
    Step,
    call=st.sampled_from(CALLS),
    who=st.sampled_from([0] * 6 + [1, 1, 1, 2]),
    near=st.sampled_from([0, 0, 0, 0, 0, -1, 1]),
    far=st.sampled_from([0, 1, 1, 1, 2, 3]),
    pick=st.integers(1, 7),
    timeline=st.sampled_from(["ours"] * 8 + ["theirs"]),
    schema=st.sampled_from([0] * 6 + [1, 1, 2]),
)


RARE = (
    Step("stage", 0, 0, 0, 1, "ours", 0),
    Step("tear", 0, 0, 0, 1, "ours", 0),
    Step("commit", 0, 0, 1, 1, "ours", 0),  # with a file that was cut short
    Step("reopen", 1, 0, 0, 1, "ours", 0),
    Step("replace", 1, 0, 2, 1, "ours", 0),  # the same files again, which are gone, and then with a longer span
    Step("replace", 1, 1, 2, 1, "ours", 0),
    Step("take out", 1, 1, 2, 1, "ours", 0),
    Step("take out", 1, 0, 3, 2, "ours", 0),  # of the epochs in between, none can be read alone
    Step("look", 1, 0, 0, 1, "ours", 0),
    Step("replace", 1, 0, 2, 1, "ours", 0),
    Step("repeat", 1, 0, 0, 1, "ours", 0),  # made already
    Step("commit", 1, 0, 1, 1, "theirs", 0),  # of another history
    Step("commit", 1, 0, 1, 1, "ours", 2),  # with other columns
)


def digest(timeline: str, epoch: int) -> str:
    """A digest that differs from the other timeline's from epoch 2 on."""
    return blake2b(f"{timeline if epoch > 1 else ''}{epoch}".encode(), digest_size=16).hexdigest()


def history(timeline: str, lower: int, upper: int) -> History:
    minted = datetime(2026, 11, 23, tzinfo=UTC)
    links = [Link(epoch=e, digest=digest(timeline, e), minted_at=minted, sources={}) for e in range(lower, upper)]
    return History(tuple(links), digest(timeline, lower - 1) if lower > 0 else "") if links else NO_HISTORY


def stem(file: StagedFile) -> str:
    """What a file's name has in common wherever it is."""
    return file.path.rpartition("/")[2].removesuffix(".parquet")


class Moved:
    """A folder that is away for a while, or what stands for one."""

    def __init__(self, away: Callable[[], object], back: Callable[[Any], object]) -> None:
        self.away, self.back = away, back

    def __enter__(self) -> None:
        self.kept = self.away()

    def __exit__(self, *_: object) -> None:
        self.back(self.kept)


class Drivers:
    """The drivers of one sink, with what each has opened, staged and last tried to commit."""

    def __init__(
        self, sink: Any, rows: Rows, moved: Callable[[], Moved], cut: Callable[[StagedFile], object]
    ) -> None:
        self.sink = sink
        self.cut = cut
        self.rows_of = rows
        self.moved = moved
        self.tables = [sink.open(output) for output in DRIVERS]
        self.staged: list[list[StagedFile]] = [[] for _ in DRIVERS]
        self.listed: list[list[Held]] = [[] for _ in DRIVERS]
        self.litter: list[StagedFile] = []
        self.tried: list[tuple[Any, dict[str, Any]] | None] = [None for _ in DRIVERS]

    def act(self, step: Step, number: int) -> Any:
        """Do a step. Return what is to be the same for every sink: the fault, or the answer."""
        try:
            return getattr(self, step.call.replace(" ", "_"))(step, number)
        except (TidegaugeError, OSError) as error:
            return type(error)

    # -- the calls

    def stage(self, step: Step, number: int) -> Any:
        lower = self.tables[step.who].upper
        epochs = [lower + offset for offset in range(step.far + 1) if step.pick >> offset & 1] or [lower]
        rows = pa.table({"user": [f"step {number}"] * len(epochs), "_epoch": epochs}, schema=SCHEMA)
        self.staged[step.who] += (made := self._staged(rows, step, number))
        return [(stem(file), file.rows, file.first_epoch, file.last_epoch) for file in made]

    def commit(self, step: Step, number: int) -> Any:
        self._commit(step, number, self.staged[step.who], [])
        self.staged[step.who] = []

    def take_out(self, step: Step, number: int) -> Any:
        remove = [file for file, _ in self._picked(step)]
        self._commit(step._replace(near=min(0, step.near)), number, self.staged[step.who], remove)
        self.staged[step.who] = []

    def replace(self, step: Step, number: int) -> Any:
        """Put files together, or only some of their rows, which is refused."""
        if picked := self._picked(step):
            rows = pa.concat_tables([rows.select(SCHEMA.names).cast(SCHEMA) for _, rows in picked])
            files = self._staged(rows.slice(0 if step.far else 1), step, number)
            self.litter += files
            self._commit(step._replace(near=0, far=0), number, files, [file for file, _ in picked])

    def repeat(self, step: Step, _number: int) -> Any:
        if (tried := self.tried[step.who]) is not None:
            args, options = tried
            self.tables[step.who].commit(*args, **options)

    def discard(self, step: Step, _number: int) -> Any:
        self.tables[step.who].discard(self.staged[step.who])
        self.staged[step.who] = []

    def abandon(self, step: Step, _number: int) -> Any:
        self.litter += self.staged[step.who]
        self.staged[step.who] = []

    def tear(self, step: Step, _number: int) -> Any:
        """Cut short a file that is staged, and not committed."""
        for file in self.staged[step.who][:1]:
            self.cut(file)

    def begin(self, step: Step, number: int) -> Any:
        """Begin to stage, and die."""
        stager = self._stager(step, number)
        stager.write(pa.RecordBatch.from_pylist([{"user": "ada", "_epoch": 0}], schema=SCHEMA))

    def sweep(self, step: Step, _number: int) -> Any:
        table, mark = self.tables[step.who], DRIVERS[step.who].incarnation[-16:]
        if isinstance(self.sink, DeltaSink):  # it leaves litter to VACUUM; what is staged is to be equal afterwards
            everything = [*self.litter, *(file for staged in self.staged for file in staged)]
            table.discard([file for file in everything if mark in file.path])
        else:
            table.sweep(lambda: None)

    def reopen(self, step: Step, _number: int) -> Any:
        self.tables[step.who] = self.sink.open(DRIVERS[step.who])

    def look(self, step: Step, _number: int) -> Any:
        """Look at the present table by what was opened before. How far that has come is seen by some looks alone."""
        found = self.seen(self.tables[step.who])
        self.tables[step.who] = self.sink.open(DRIVERS[step.who])
        return found

    def vanish(self, step: Step, _number: int) -> Any:
        """Look for the table while it is away."""
        with self.moved():
            self.tables[step.who].stand()

    def stranger(self, _step: Step, _number: int) -> Any:
        self.sink.open(STRANGER)

    # -- what is seen

    def seen(self, table: Any) -> Any:
        """All that a table says of itself, in words that are the same for every sink."""
        schema, files, upper = table.schema, table.files(), table.upper
        versions = [table.version_of(epoch) for epoch in range(-1, upper + 1)]
        return {
            "upper": upper,
            "digest": None if table.digest is None else table.digest[:15],
            "schema": None if schema is None else sorted((field.name, field.type) for field in schema),
            "files": sorted((stem(f), f.rows, f.first_epoch, f.last_epoch) for f in files),
            "rows": self._read(table, files),
            "volume": (table.volume().files, table.volume().rows, table.volume() == Volume.of(files)),
            "brought together": [versions.index(version) for version in versions],
            "links": sorted({(link.epoch, link.digest) for link in table.links()}),
            "as of": [self._as_of(table, epoch) for epoch in range(upper)],
        }

    def _as_of(self, table: Any, epoch: int) -> Any:
        try:
            files = table.files(as_of=epoch)
        except TidegaugeError as error:
            return type(error)
        return [row for row in self._read(table, files) if row[1] <= epoch]

    def _read(self, table: Any, files: Sequence[StagedFile]) -> list[tuple[str, int]]:
        rows = self.rows_of(table, files)
        return sorted(zip(rows["user"].to_pylist(), rows["_epoch"].to_pylist(), strict=True)) if files else []

    # -- the parts

    def _staged(self, rows: pa.Table, step: Step, number: int) -> list[StagedFile]:
        stager = self._stager(step, number)
        for batch in rows.to_batches():
            stager.write(batch)
        made: list[StagedFile] = stager.close()
        return made

    def _stager(self, step: Step, number: int) -> Any:
        job = f"{DRIVERS[step.who].incarnation[-16:]}{number:016x}"
        return self.sink.stage(SCHEMA, job=job, task=step.pick)

    def _picked(self, step: Step) -> list[Held]:
        """Some of the files that are committed, or that were when this driver looked last."""
        if step.near != 1:
            table = self.sink.open(DRIVERS[step.who])
            held = sorted(table.files(), key=stem)
            self.listed[step.who] = [(file, self.rows_of(table, [file])) for file in held]
        return [one for place, one in enumerate(self.listed[step.who]) if step.pick >> place % 3 & 1]

    def _commit(self, step: Step, number: int, files: Iterable[StagedFile], remove: list[StagedFile]) -> None:
        table = self.tables[step.who]
        lower = table.upper + step.near
        upper = lower + step.far
        schema = SCHEMAS[step.schema] if table.upper else SCHEMA  # the first commit has the columns of its files
        args = (lower, upper, schema, [*files])
        write = f"{DRIVERS[step.who].incarnation[-16:]}{number:016x}"
        options = {"remove": remove, "write": write, "history": history(step.timeline, lower, upper)}
        self.tried[step.who] = args, options
        table.commit(*args, **options)


def on_disk(sink: Any) -> Drivers:
    place, aside = Path(sink.path), Path(f"{sink.path}-aside")

    def rows(table: Any, files: Sequence[StagedFile]) -> pa.Table:
        found = [pq.ParquetFile(uri).read().select(SCHEMA.names) for uri in table.uris(files)]
        return pa.concat_tables(found or [SCHEMA.empty_table()])

    def away() -> bool:
        return place.exists() and bool(place.rename(aside))

    def cut(file: StagedFile) -> None:
        with suppress(FileNotFoundError):  # swept
            os.truncate(place / file.path, file.bytes // 2)

    return Drivers(sink, rows, lambda: Moved(away, lambda there: there and aside.rename(place)), cut)


def in_memory() -> Drivers:
    lake = Lake()

    def rows(table: Any, files: Sequence[StagedFile]) -> pa.Table:
        return lake.read(View(2**40, table.uris(files), SCHEMA))

    def back(table: Any) -> None:
        if table is not None:
            lake.tables["orders"] = table

    def cut(file: StagedFile) -> None:
        staged = lake.tables["orders"].staged
        if file.path in staged:
            staged[file.path] = None

    sink = SimulatedSink(lake, "orders")
    return Drivers(sink, rows, lambda: Moved(lambda: lake.tables.pop("orders", None), back), cut)


@deep(120)
@example(held=3, steps=[*RARE])
@given(held=st.integers(0, 4), steps=st.lists(STEP, max_size=30))
def test_it_answers_whatever_is_asked_as_a_real_table_does(held: int, steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        real = [on_disk(DeltaSink(f"{folder}/delta")), on_disk(ParquetSink(f"{folder}/parquet"))]
        simulated = in_memory()
        begun = [Step(call, 0, 0, 1, 1, "ours", 0) for call in ("stage", "commit")] * held
        for number, step in enumerate(begun + steps):
            delta, parquet = (drivers.act(step, number) for drivers in real)
            found = simulated.act(step, number)
            assert found in (delta, parquet), (step, found, delta, parquet)
            for drivers in real:
                assert [table.upper for table in drivers.tables] == [table.upper for table in simulated.tables]
        for who in (0, 2):
            for call in ("reopen", "look"):
                last = Step(call, who, 0, 0, 0, "ours", 0)
                assert simulated.act(last, -1) == real[0].act(last, -1) == real[1].act(last, -1)
