"""The laws of the design under random appends, rotations, broken steps, ticks and crashes (laws 1, 2, 4, 6, 7, 9)."""

from __future__ import annotations

import json
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.flow.by_hand import Crash, Run, World
from tests.flow.recorder import Recorder

import tidegauge as tg
from tidegauge.errors.command import NotPublished, OutputIsBehind
from tidegauge.errors.history import NothingToRecoverFrom
from tidegauge.errors.kafka import BrokerUnreachable
from tidegauge.looking.inspect import holds
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.store import Loaded
from tidegauge.sinks import OutputId

LINE = "n long, text string"


@dataclass
class Troubled(World):
    """A world in which a step may be broken, and sources may be away, at present."""

    broken: bool = False
    away: set[str] = field(default_factory=set)


def doubled(world: Troubled, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Every row twice, so that an output has another number of rows than its source. While broken, no third row."""
    if world.broken and any(n % 3 == 0 for n in batch["n"].to_pylist()):
        raise ValueError("no third row today")
    return pa.concat_batches([batch, batch])


def make(world: World) -> tg.Dataflow:
    """Two sources, three outputs of two kinds."""
    assert isinstance(world, Troubled)
    flow = tg.Dataflow("laws", store=world.store, tick=0.5)
    streams = {}
    for name in ("a", "b"):
        source = tg.FileSource(
            str(world.root / name / "*.log"),
            format=tg.Json(LINE),
            metadata=True,
            max_bytes_per_epoch=200,
            split_bytes=64,
        )
        recorder = Recorder(source, partial(witness, world, name), partial(meet, world, name))
        streams[name] = flow.source(name, recorder)
    flow.sink("a", streams["a"], tg.DeltaSink(str(world.root / "lake" / "a")))
    flow.sink(
        "a2", streams["a"].map_batches(partial(doubled, world)), tg.ParquetSink(str(world.root / "lake" / "a2"))
    )
    flow.sink("b", streams["b"], tg.ParquetSink(str(world.root / "lake" / "b")))
    return flow


def meet(world: Troubled, source: str) -> None:
    """Let nobody read a source that is away."""
    if source in world.away:
        raise BrokerUnreachable(servers=source, detail="down")


def witness(world: World, source: str, acknowledged: Frontier) -> None:
    """Law 4, at the instant of an acknowledgement: every output of the source holds all of it, durably."""
    loaded, flow = world.loaded(), make(world)
    for name, plan in flow.outputs.items():
        if plan.source == source:
            table = plan.sink.open(OutputId(flow.name, name, loaded.flow.incarnation))
            held = loaded.sources[source].table.inverse(holds(loaded, source, table.upper))
            assert acknowledged.less_equal(held), f"{source} was acknowledged beyond what {name} holds"


class Laws(RuleBasedStateMachine):
    """Writers and crashes against a flow of two file sources."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="tidegauge-laws-"))
        self.world = Troubled(self.root, make)
        self.run: Run | None = None
        self.written: dict[str, list[dict[str, Any]]] = {"a": [], "b": []}
        self.partial: dict[Path, str] = {}
        self.seen: dict[tuple[str, int], list[Any]] = {}
        self.number = 0
        self.rotated = 0
        self.copies = 0
        self.backup: Path | None = None
        self.stirred = False
        """Whether the driver has done anything since the laws were checked."""

    @initialize()
    def begin(self) -> None:
        for name in ("a", "b"):
            (self.root / name).mkdir()

    def teardown(self) -> None:
        if self.run is not None:
            self.run.abandon()
        shutil.rmtree(self.root, ignore_errors=True)

    # What writers do.

    @rule(
        source=st.sampled_from(["a", "b"]),
        file=st.integers(0, 2),
        texts=st.lists(st.text(alphabet='xyz "\\\né', max_size=12), min_size=1, max_size=6),
        cut=st.integers(0, 20),
    )
    def append(self, source: str, file: int, texts: list[str], cut: int) -> None:
        path = self.root / source / f"{file}.log"
        data = self.partial.pop(path, "")
        for text in texts:
            self.number += 1
            row = {"n": self.number, "text": text}
            self.written[source].append(row)
            data += json.dumps(row, ensure_ascii=False) + "\n"
        encoded = data.encode()
        kept = encoded[: max(0, len(encoded) - cut)].decode(errors="ignore")
        self.partial[path] = data[len(kept) :]
        with path.open("a", encoding="utf-8") as out:
            out.write(kept)

    @rule(source=st.sampled_from(["a", "b"]), file=st.integers(0, 2))
    def rotate(self, source: str, file: int) -> None:
        path = self.root / source / f"{file}.log"
        if path.exists() and path.stat().st_size:
            self.finish(path)
            self.rotated += 1
            path.rename(path.with_name(f"{path.name}.{self.rotated}"))

    def finish(self, path: Path) -> None:
        rest = self.partial.pop(path, "")
        if rest:
            with path.open("a", encoding="utf-8") as out:
                out.write(rest)

    # What the driver does, and what happens to it.

    def life(self) -> Run | None:
        self.stirred = True
        if self.run is None:
            with suppress(Crash):
                self.run = self.world.start()
        return self.run

    @rule(steps=st.integers(1, 4))
    def tick(self, steps: int) -> None:
        run = self.life()
        if run is not None:
            for _ in range(steps):
                run.step()

    @rule(lag=st.integers(0, 9), faults=st.lists(st.booleans(), max_size=6))
    def disturb(self, lag: int, faults: list[bool]) -> None:
        """From now on probes and jobs take so many steps, and some commits meet a full disk."""
        self.world.lag = lag
        self.world.faults.extend(faults)

    @rule(broken=st.booleans())
    def edit_the_step(self, broken: bool) -> None:
        """Somebody breaks the step of `a2`, or mends it."""
        self.world.broken = broken

    @rule(source=st.sampled_from(["a", "b"]), back=st.booleans())
    def leave(self, source: str, back: bool) -> None:
        """A source cannot be read from now on, or can be again."""
        self.world.away = self.world.away - {source} if back else self.world.away | {source}

    @rule(source=st.sampled_from(["a", "b"]))
    def the_others_go_on(self, source: str) -> None:
        """A source is away, and the outputs of the other one come to hold all that is bound."""
        self.world.away = {source}
        run = self.life()
        if run is None:
            return
        bound, others = run.runner.board.upper, [o for o in run.runner.board.outputs.values() if o.source != source]
        for _ in range(150):
            if all(output.upper >= bound or output.state == "failed" for output in others):
                return
            run.step()
        raise AssertionError(f"while {source} was away, others did not go on: {others}")

    @rule(after=st.integers(0, 40), steps=st.integers(1, 8))
    def crash(self, after: int, steps: int) -> None:
        self.world.crash_at = after
        try:
            run = self.life()
            for _ in range(steps if run is not None else 0):
                assert run is not None
                run.step()
        except Crash:
            pass
        if self.run is not None:
            self.run.abandon()
            self.run = None
        self.world.crash_at = None

    @precondition(lambda self: self.run is not None)
    @rule()
    def restart(self) -> None:
        assert self.run is not None
        self.run.abandon()
        self.run = None

    @rule()
    def back_up(self) -> None:
        """Somebody takes a copy of the store, whatever the driver does."""
        if (self.root / "flow.db").exists():
            self.copies += 1
            with suppress(tg.TidegaugeError):  # the flow is not registered yet
                tg.backup(make(self.world), self.root / f"copy-{self.copies}")
                self.backup = self.root / f"copy-{self.copies}"

    @rule(lost=st.booleans())
    def roll_back(self, lost: bool) -> None:
        """The store is put back to the last copy, or is lost; then it is recovered from the tables."""
        if self.run is not None:
            self.run.abandon()
            self.run = None
        for path in self.root.glob("flow.db*"):
            path.unlink()
        if self.backup is not None and not lost:
            shutil.copy(self.backup, self.root / "flow.db")
        self.stirred = True
        with suppress(NothingToRecoverFrom):
            tg.recover(make(self.world), env=self.world.env())

    @rule()
    def everything_arrives(self) -> None:
        self.world.away = set()
        run = self.life()
        if run is None:
            return
        run.catch_up()
        flow, loaded = make(self.world), self.world.loaded()
        assert tg.verify(flow).problems == ()
        for source, outputs in {"a": [("a", 1), ("a2", 2)], "b": [("b", 1)]}.items():
            complete = self.complete(source, loaded)
            for output, copies in outputs:
                if run.runner.board.outputs[output].state == "failed":
                    assert loaded.outputs[output].failure is not None, "a failure that a restart would forget"
                elif loaded.sources[source].table.frontier:
                    rows = tg.read_arrow(flow, output).to_pylist()
                    found = sorted((row["n"], row["text"]) for row in rows)
                    assert found == sorted(complete * copies)

    def complete(self, source: str, loaded: Loaded) -> list[tuple[int, str]]:
        """Every complete line that was written in files that the glob has ever matched."""
        found = []
        for path in sorted((self.root / source).iterdir()):
            data = path.read_bytes()
            found += [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]
        return [(row["n"], row["text"]) for row in found if self.visible(row, source, loaded)]

    def visible(self, row: dict[str, Any], source: str, loaded: Loaded) -> bool:
        """Files rotated away before the flow saw them for the first time do not match the glob:

        nobody can know them.
        """
        for path in (self.root / source).iterdir():
            if f'"n": {row["n"]},'.encode() in path.read_bytes():
                inode = path.stat().st_ino
                known = any(detail.get("ino") == inode for detail in loaded.sources[source].details.values())
                return known or path.suffix == ".log"
        return False

    # The laws.

    @invariant()
    def laws_hold(self) -> None:
        if not self.stirred or not (self.root / "flow.db").exists():
            return
        self.stirred = False
        try:
            loaded = self.world.loaded()
        except tg.TidegaugeError:
            return  # the store was created, and the flow not yet registered
        flow = make(self.world)
        published = loaded.flow.published
        for name, plan in flow.outputs.items():
            if not published or loaded.sources.get(plan.source) is None:
                continue
            self.check_output(flow, name, plan.source, published, loaded)
        self.check_first_epoch(loaded)

    def check_output(self, flow: tg.Dataflow, name: str, source: str, published: int, loaded: Loaded) -> None:
        """Laws 1 and 6: an epoch holds the records of its ranges, and never changes once published."""
        rows = []
        if name in loaded.backfills and not self.upper(flow, name, loaded):
            with pytest.raises(OutputIsBehind):
                tg.read_arrow(flow, name)
            return
        with suppress(NotPublished):  # no row yet
            rows = tg.read_arrow(flow, name).to_pylist()
        copies = 2 if name == "a2" else 1
        held = holds(loaded, source, self.upper(flow, name, loaded))
        if held < published:
            failure = loaded.outputs[name].failure
            assert failure is not None, f"{name} lacks what is published, and nobody knows why"
            assert failure[0] >= held
        by_epoch: dict[int, list[Any]] = {}
        for row in rows:
            by_epoch.setdefault(row["_epoch"], []).append((row["_partition"], row["_offset"], row["n"], row["text"]))
        table = loaded.sources[source].table
        for epoch in range(min(published, held)):
            content = sorted(by_epoch.pop(epoch, []))
            before = self.seen.setdefault((name, epoch), content)
            assert content == before, f"epoch {epoch} of {name} changed after it was published"
            ranges = {(s.partition): (s.lower, s.upper) for s in table.slices(epoch, epoch + 1)}
            wanted = [
                r for p, (lower, upper) in ranges.items() for r in self.records(p, lower, upper, loaded, source)
            ]
            assert content == sorted(wanted * copies)
        assert not by_epoch, "rows of epochs that are not published are visible"

    def upper(self, flow: tg.Dataflow, name: str, loaded: Loaded) -> int:
        return flow.outputs[name].sink.open(OutputId(flow.name, name, loaded.flow.incarnation)).upper

    def records(self, partition: str, lower: int, upper: int, loaded: Loaded, source: str) -> list[Any]:
        """The records of a range, read from the file by nobody but this test."""
        inode = loaded.sources[source].details[partition]["ino"]
        path = next(p for p in (self.root / source).iterdir() if p.stat().st_ino == inode)
        found, position = [], lower
        for line in path.read_bytes()[lower:upper].splitlines(keepends=True):
            row = json.loads(line)
            found.append((partition, position, row["n"], row["text"]))
            position += len(line)
        assert position == upper, "a bound position is not a record boundary"
        return found

    def check_first_epoch(self, loaded: Loaded) -> None:
        """Law 7, and law 2: epochs are dense from 0, and what is published was bound before."""
        assert loaded.flow.published <= loaded.flow.upper
        epochs = sorted({epoch for source in loaded.sources.values() for epoch, _, _ in source.table.changes()})
        assert epochs == list(range(loaded.flow.upper)), "an epoch without a binding, or none at 0"


SCHEDULES = settings(
    max_examples=25,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


@pytest.mark.long
def test_pg_under_any_schedule_of_crashes_tables_hold_what_one_life_makes_and_no_ack_is_early() -> None:
    run_state_machine_as_test(Laws, settings=SCHEDULES)
