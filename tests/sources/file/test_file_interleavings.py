"""Whatever happens to the files between two looks, every complete line is bound to one epoch and read once."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from tests.depth import examples

from tidegauge.remap.findings import Findings
from tidegauge.sources import FileSource, Json
from tidegauge.sources.file.listing import listed
from tidegauge.sources.file.watching import Watch


@dataclass
class Written:
    """A file as its writer knows it. `path` is None once it was deleted."""

    path: Path | None
    content: bytearray = field(default_factory=bytearray)
    pending: bytes = b""
    ino: int = 0

    @property
    def complete(self) -> int:
        return self.content.rfind(b"\n") + 1

    def lines(self, lower: int, upper: int) -> list[Any]:
        return [json.loads(line) for line in self.content[lower:upper].splitlines()]


class Interleaved(RuleBasedStateMachine):
    """Writers append, rotate, delete and touch; the driver probes, binds, plans and reads, in any order."""

    driver_class: Any = None

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="interleaved"))
        self.files: list[Written] = []
        self.number = 0
        self.expected: list[int] = []

    @initialize(rotated_match=st.booleans(), limit=st.sampled_from([1, 25, 60, 1 << 20]), split=st.integers(1, 80))
    def begin(self, rotated_match: bool, limit: int, split: int) -> None:
        self.rotated_match = rotated_match
        source = FileSource(
            f"{self.folder}/*.log*" if rotated_match else f"{self.folder}/*.log",
            format=Json("n long, pad string"),
            max_bytes_per_epoch=limit,
            split_bytes=split,
        )
        self.driver = self.driver_class(source)
        self.plans: list[tuple[Any, list[Any]]] = []

    def alive(self) -> list[Written]:
        return [file for file in self.files if file.path is not None]

    def bound_to(self, file: Written) -> int:
        keys = [k for k in self.driver.bound.frontier if self.owner(k) is file]
        return max((self.driver.bound.frontier[k] for k in keys), default=0)

    def owner(self, key: str) -> Written:
        """Return the file that a partition is, told by its content and not by the means of the source."""
        size = self.driver.bound.frontier[key]
        detail = self.driver.bound.details[key]
        owners = [f for f in self.files if f.ino == detail["ino"] and self.partition_of(f, detail, size)]
        assert len(owners) == 1
        return owners[0]

    @staticmethod
    def partition_of(file: Written, detail: Any, size: int) -> bool:
        head = hashlib.blake2b(bytes(file.content[: detail["head"]]), digest_size=16).hexdigest()
        return len(file.content) >= size and head == detail["digest"]

    @rule(
        name=st.sampled_from("abc"),
        pad=st.integers(0, 30),
        cut=st.none() | st.integers(0, 60),
        more=st.integers(0, 4),
    )
    def append(self, name: str, pad: int, cut: int | None, more: int) -> None:
        path = self.folder / f"{name}.log"
        file = next((f for f in self.alive() if f.path == path), None)
        if file is None:
            file = Written(path)
            self.files.append(file)
        self.write(file, pad, cut, more)

    @precondition(lambda self: self.alive())
    @rule(data=st.data(), pad=st.integers(0, 30), cut=st.none() | st.integers(0, 60))
    def append_to_any(self, data: st.DataObject, pad: int, cut: int | None) -> None:
        self.write(data.draw(st.sampled_from(self.alive())), pad, cut, 0)

    def write(self, file: Written, pad: int, cut: int | None, more: int) -> None:
        text = file.pending
        for _ in range(1 + more):
            text += json.dumps({"n": self.number, "pad": "x" * pad}).encode() + b"\n"
            self.number += 1
        now, file.pending = (text, b"") if cut is None else (text[:cut], text[cut:])
        before = file.complete
        with open(file.path or "", "ab") as stream:
            stream.write(now)
            file.ino = os.fstat(stream.fileno()).st_ino
        file.content += now
        self.expected += [row["n"] for row in file.lines(before, file.complete)]

    @precondition(lambda self: self.alive())
    @rule(data=st.data())
    def rotate(self, data: st.DataObject) -> None:
        logs = [f for f in self.alive() if f.path is not None and f.path.suffix == ".log"]
        ready = [f for f in logs if self.rotated_match or self.bound_to(f)]
        if not ready:
            return
        file = data.draw(st.sampled_from(ready))
        assert file.path is not None
        stem = file.path.name
        for older in sorted(self.alive(), key=lambda f: str(f.path), reverse=True):
            if older.path is not None and older.path.name.startswith(stem + "."):
                moved = self.folder / f"{stem}.{int(older.path.suffix[1:]) + 1:02d}"
                older.path = older.path.rename(moved)
        file.path = file.path.rename(self.folder / f"{stem}.01")

    @precondition(lambda self: self.alive())
    @rule(data=st.data())
    def delete_one_that_is_in(self, data: st.DataObject) -> None:
        unread = {piece.partition for epoch in self.driver.epochs[self.driver.read_up_to :] for piece in epoch}
        unread |= {split.partition for _, splits in self.plans for split in splits}
        busy = {id(self.owner(key)) for key in unread}
        done = [f for f in self.alive() if self.bound_to(f) == len(f.content) and id(f) not in busy]
        if done:
            file = data.draw(st.sampled_from(done))
            assert file.path is not None
            file.path.unlink()
            file.path = None

    @precondition(lambda self: self.alive())
    @rule(data=st.data(), seconds=st.integers(0, 10_000))
    def touch(self, data: st.DataObject, seconds: int) -> None:
        path = data.draw(st.sampled_from(self.alive())).path
        assert path is not None
        os.utime(path, (seconds, seconds))

    @precondition(lambda self: self.driver.findings is None)
    @rule(names=st.sampled_from(["*", "*.log", "a*", "**/*.01"]))
    def others_look(self, names: str) -> None:
        """A look begins, in which others list the folder; this source is asked when more has happened."""
        self.driver.findings = Findings()
        listed(f"{self.folder}/{names}", watch=Watch(findings=self.driver.findings))

    @rule()
    def tick(self) -> None:
        before = self.driver.bound.frontier
        slices = self.driver.tick()
        limit = self.driver.source.max_bytes_per_epoch
        taken = self.driver.bound.frontier.distance(before)
        if taken > limit:  # one record may be larger than an epoch, and is found by doubling what is looked at
            assert len(slices) == 1
            piece = slices[0]
            first = self.owner(piece.partition).content.index(b"\n", piece.lower) + 1 - piece.lower
            assert limit < first <= taken < 2 * first

    @rule()
    def read(self) -> None:
        self.driver.catch_up()

    @rule()
    def plan_for_later(self) -> None:
        slices = [piece for epoch in self.driver.epochs[self.driver.read_up_to :] for piece in epoch]
        self.driver.read_up_to = len(self.driver.epochs)
        self.plans.append((slices, self.driver.plan(slices)))

    @precondition(lambda self: self.plans)
    @rule()
    def read_what_was_planned(self) -> None:
        _, splits = self.plans.pop(0)
        self.driver.rows += self.driver.rows_of(splits)

    @rule(split=st.integers(1, 100))
    def slices_hold_what_the_file_holds_there(self, split: int) -> None:
        here = [p for epoch in self.driver.epochs for p in epoch if self.owner(p.partition).path is not None]
        whole = replace(self.driver.source, split_bytes=split)
        for piece in here[-5:]:
            splits = whole.plan([piece], self.driver.bound)
            assert self.driver.rows_of(splits) == self.owner(piece.partition).lines(piece.lower, piece.upper)

    def teardown(self) -> None:
        try:
            if not hasattr(self, "driver"):
                return
            while self.plans:
                self.read_what_was_planned()
            self.driver.tick()  # it may be part of a look that began before the last line was written
            self.driver.catch_up()
            while self.driver.tick():
                self.driver.catch_up()
            self.driver.catch_up()
            assert self.driver.last.more is False
            assert sorted(row["n"] for row in self.driver.rows) == sorted(self.expected)
            assert self.driver.bad == []
        finally:
            shutil.rmtree(self.folder)


@pytest.mark.deep
def test_every_complete_line_is_read_once_in_every_interleaving(drive: Any) -> None:
    Interleaved.driver_class = drive
    run_state_machine_as_test(
        Interleaved,
        settings=settings(
            max_examples=examples(300), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
