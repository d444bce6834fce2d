"""A driver that is killed at any instant leaves a table that can be read and an upper that says what it holds."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tidegauge.errors.sinks import BrokenChain, FilesChangedByOthers
from tidegauge.sinks.manifest import MANIFEST, folder_name

PROGRAM = """
import os, pathlib, signal, sys
import pyarrow as pa
import deltalake, tidegauge.sinks.deltalog as deltalog
from tidegauge.sinks import DeltaSink, OutputId, ParquetSink

kind, path, instant = sys.argv[1:]
schema = pa.schema([("user", pa.string()), ("amount", pa.float64()), ("_epoch", pa.int64())])

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def around(owner, name, before, when=lambda *a: True):
    real = getattr(owner, name)
    def wrapped(*a, **k):
        if before and when(*a):
            die()
        result = real(*a, **k)
        if when(*a):
            die()
        return result
    setattr(owner, name, wrapped)

sink = {"delta": DeltaSink, "parquet": ParquetSink}[kind](path)
table = sink.open(OutputId("shop", "orders", "a" * 32))
stager = sink.stage(schema, job="a" * 16 + "c" * 16, task=0)
columns = {"user": ["new", "new"], "amount": [1.0, 2.0], "_epoch": [table.upper] * 2}
stager.write(pa.record_batch(columns, schema=schema))
if instant == "staging":
    die()
files = stager.close()
if instant == "staged":
    die()
before = instant.startswith("before")
if kind == "delta":
    around(deltalog, "create_table_with_add_actions", before)
    around(os, "link", before)
elif instant == "gathering":
    around(pathlib.Path, "rename", False)
else:
    around(pathlib.Path, "rename", before, lambda source, target: "from_epoch=" in pathlib.Path(target).name)
table.commit(table.upper, table.upper + 1, schema, files, write="a" * 16 + "c" * 16)
"""

INSTANTS = [
    (kind, instant, instant == "after commit")
    for kind in ("delta", "parquet")
    for instant in ("staging", "staged", "before commit", "after commit", "gathering")
    if (kind, instant) != ("delta", "gathering")
]


@pytest.mark.parametrize(
    "base", [pytest.param(0, id="first commit", marks=pytest.mark.long), pytest.param(2, id="later commit")]
)
@pytest.mark.parametrize(("kind", "instant", "committed"), INSTANTS)
def test_killed_at(kind: str, instant: str, committed: bool, base: int, tmp_path: Path, kinds: Any) -> None:
    path = str(tmp_path / "t")
    bench = kinds(kind, path)
    if base:
        bench.commit(bench.open(), 0, base)
    result = subprocess.run([sys.executable, "-c", PROGRAM, kind, path, instant], check=False, capture_output=True)
    assert result.returncode == -signal.SIGKILL, result.stderr.decode()

    old = [("ada", epoch) for epoch in range(base)]
    new = [("new", base)] * 2 if committed else []
    assert bench.rows() == sorted(old + new)
    table = bench.open()
    assert table.upper == base + committed
    assert sum(file.rows for file in table.files()) == len(old + new)

    if kind == "parquet":  # what the next driver of the flow does, and what it leaves
        table.sweep(lambda: None)
        named = {Path(uri) for uri in table.uris(table.files())}
        named |= {Path(path, folder_name(lower), MANIFEST) for lower in ([0] if base else []) + [base] * committed}
        assert {found for found in Path(path).rglob("*") if found.is_file()} == named
        assert list(Path(path).glob("_staged/*")) == []
    bench.commit(table, table.upper, table.upper + 1, "again")  # and the table goes on
    assert bench.rows() == sorted([*old, *new, ("again", base + committed)])


MENDING = """
import os, pathlib, signal, sys
import pyarrow as pa
from deltalake import DeltaTable
from tidegauge.remap.history import NO_HISTORY
from tidegauge.sinks import DeltaSink, OutputId, ParquetSink

kind, path, dies = sys.argv[1], sys.argv[2], int(sys.argv[3])
schema = pa.schema([("user", pa.string()), ("amount", pa.float64()), ("_epoch", pa.int64())])
steps = 0

def step(*_):
    global steps
    steps += 1
    if steps == dies:
        os.kill(os.getpid(), signal.SIGKILL)

def around(owner, name):
    real = getattr(owner, name)
    def wrapped(*a, **k):
        step()
        result = real(*a, **k)
        step()
        return result
    setattr(owner, name, wrapped)

sink = {"delta": DeltaSink, "parquet": ParquetSink}[kind](path)
table = sink.mend(OutputId("shop", "orders", "a" * 32))
epochs = table.whole(table.damage.epochs)
files = []
for one in epochs:
    stager = sink.stage(schema, job="a" * 16 + f"{dies:016x}", task=one.start)
    stager.write(pa.record_batch([["ada"] * len(one), [1.5] * len(one), list(one)], schema=schema))
    files += stager.close()
around(os, "link")
around(pathlib.Path, "rename")
write, told = "a" * 16 + f"{dies:016x}", lambda lower, upper: NO_HISTORY
table.replace(epochs, table.upper, schema, files, write=write, told=told)
"""


def mend(bench: Any, dies: int) -> None:
    """Mend a table in a process that is killed before or after so many renames or links, if there are so many."""
    command = [sys.executable, "-c", MENDING, bench.kind.name, bench.path, str(dies)]
    result = subprocess.run(command, check=False, capture_output=True)
    assert result.returncode in (0, -signal.SIGKILL), result.stderr.decode()


def test_killed_while_a_table_is_mended_it_is_as_it_was_or_whole(tmp_path: Path, kinds: Any) -> None:
    bench = kinds("delta", str(tmp_path / "t"))
    table = bench.open()
    for epoch in range(4):
        bench.commit(table, epoch, epoch + 1)
    DeltaTable(bench.path).restore(2)
    damaged, whole = [("ada", epoch) for epoch in range(3)], [("ada", epoch) for epoch in range(4)]
    seen, dies = [bench.rows()], 0
    while seen[-1] != whole:
        dies += 1
        mend(bench, dies)
        seen.append(bench.rows())
    assert seen == [damaged] * dies + [whole]
    assert dies > 1
    table = bench.open()
    bench.commit(table, 4, 5)
    assert bench.rows() == [*whole, ("ada", 4)]


@pytest.mark.long
@pytest.mark.parametrize("lost", ["a file in the middle", "a folder in the middle"])
def test_killed_while_folders_are_mended_no_epoch_is_half_there(lost: str, tmp_path: Path, kinds: Any) -> None:
    bench = kinds("parquet", str(tmp_path / "t"))
    table = bench.open()
    for lower in range(0, 6, 2):
        bench.commit(table, lower, lower + 2)
    middle = Path(bench.path, folder_name(2))
    if lost == "a file in the middle":
        next(middle.glob("*.parquet")).unlink()
    else:
        shutil.rmtree(middle)
    whole, dies = [("ada", epoch) for epoch in range(6)], 0
    while bench.rows() != whole:
        dies += 1
        with pytest.raises((FilesChangedByOthers, BrokenChain)):
            bench.open()
        assert set(bench.rows()) == {*whole[:2], *whole[4:]}
        mend(bench, dies)
    assert dies > 2
    table = bench.open()
    assert table.upper == 6
    table.sweep(lambda: None)
    assert list(Path(bench.path).glob("_staged/*")) == []
    bench.commit(table, 6, 7)
    assert bench.rows() == [*whole, ("ada", 6)]


def _race(kind: str, path: str, name: str, gate: Any, results: Any) -> None:
    import pyarrow as pa

    from tidegauge.errors.sinks import TableUpperMismatch
    from tidegauge.sinks import DeltaSink, OutputId, ParquetSink

    schema = pa.schema([("user", pa.string()), ("amount", pa.float64()), ("_epoch", pa.int64())])
    sink: Any = {"delta": DeltaSink, "parquet": ParquetSink}[kind](path)
    table = sink.open(OutputId("shop", "orders", "a" * 32))
    for epoch in range(8):
        stager = sink.stage(schema, job=f"{os.getpid():032x}", task=epoch)
        stager.write(pa.RecordBatch.from_pydict({"user": [name], "amount": [0.0], "_epoch": [epoch]}, schema=schema))
        files = stager.close()
        gate.wait()
        try:
            table.commit(epoch, epoch + 1, schema, files, write=f"{os.getpid()}-{epoch}")
            results.put((name, epoch))
        except TableUpperMismatch:
            table.discard(files)
        gate.wait()
    results.put(None)


@pytest.mark.parametrize("kind", ["delta", pytest.param("parquet", marks=pytest.mark.long)])
def test_of_processes_that_commit_at_one_instant_one_wins_each_epoch(kind: str, tmp_path: Path, kinds: Any) -> None:
    bench = kinds(kind, str(tmp_path / "t"))
    spawn = multiprocessing.get_context("spawn")
    gate, results = spawn.Barrier(3, timeout=60), spawn.Queue()
    racers = [spawn.Process(target=_race, args=(kind, bench.path, f"p{i}", gate, results)) for i in range(3)]
    for racer in racers:
        racer.start()
    won, running = [], len(racers)
    while running:
        result = results.get(timeout=90)
        if result is None:
            running -= 1
        else:
            won.append(result)
    for racer in racers:
        racer.join(60)
    assert [epoch for _, epoch in sorted(won, key=lambda w: w[1])] == list(range(8))
    assert bench.rows() == sorted(won)
    assert bench.open().upper == 8
