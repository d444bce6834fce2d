"""Faults of an object store, between the client and a real server: fault by step, and each cell is counted.

Every cell makes the same three commits as a run does: what may pass is tried again with the same files, and a commit
whose answer was lost is found in the table. After them a reader that knows nothing of Tidegauge sees each row once,
and the log has one entry for each commit and names each file once. Of a Parquet table those who list it do, and
nothing is left of what was staged.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from tests.s3 import Lake
from tests.s3_proxy import ONCE, Fault, Proxy, fault_cells
from tests.sinks.conftest import OUTPUT, SCHEMA, rows
from tests.sinks.test_parquet_in_s3 import listed_rows

from tidegauge.errors.base import Transient, waited_out
from tidegauge.errors.objects import ConditionalPutIgnored
from tidegauge.errors.sinks import TableNotRemovable, TableUpperMismatch
from tidegauge.objects.path import ObjectPath
from tidegauge.sinks import DeltaSink, ParquetSink, vectors
from tidegauge.sinks.delta import bykey
from tidegauge.sinks.keyed.planning import Sizes
from tidegauge.sinks.protocol import Finishing

STEPS = {
    "staging": ("PUT", ".parquet"),
    "first commit": ("PUT", "_delta_log/00000000000000000000.json"),
    "commit": ("PUT", "_delta_log/00000000000000000001.json"),
    "reading the log": ("GET", "_delta_log/00000000000000000001.json"),
    "looking at a file": ("HEAD", ".parquet"),
}
QUICK = {("dropped after", "commit", ONCE)}
VECTOR_STEPS = {
    "reading rows": ("GET", ".parquet"),
    "writing a vector": ("PUT", "deletion_vector"),
    "reading a vector": ("GET", "deletion_vector"),
    "commit": ("PUT", "_delta_log/00000000000000000001.json"),
}
"""What else a table by key does whose dead rows are marked."""
PARQUET_STEPS = {
    "staging": ("PUT", "_staged/"),
    "first commit": ("PUT", "000000000000/_manifest.json"),
    "commit": ("PUT", "000000000001/_manifest.json"),
    "reading the chain": ("GET", "_manifest.json"),
    "looking at a file": ("HEAD", ".parquet"),
    "bringing into sight": ("PUT", "000000000001/part-"),
    "clearing up": ("POST", "?delete"),
}
"""Those of a Parquet table."""


@pytest.mark.parametrize(("fault", "step", "times"), [*fault_cells(STEPS, QUICK)])
@pytest.mark.parametrize("envelope", ["append", pytest.param("upsert", marks=pytest.mark.long)])
def test_each_row_is_there_once_whatever_breaks_where(
    lake: Lake, proxy: Proxy, fault: str, step: str, times: int, envelope: Any
) -> None:
    sink = DeltaSink(lake.at(), envelope=envelope, key="user" if envelope == "upsert" else None)
    broken = Fault(fault, *STEPS[step], times=times)
    proxy.faults.append(broken)
    told: list[Transient] = []
    for epoch in range(3):
        done(sink, epoch, told)
    assert broken.met > 0, "nothing was broken"
    for error in told:
        assert waited_out(error), f"a run would give up: {error}"
        assert "hunter2" not in str(error)
    if fault == "expired" and broken.method != "HEAD":  # to which no answer has a word
        assert any(error.code == "TG-0581" for error in told)
    proxy.faults.clear()
    found = DeltaTable(lake.at()).to_pyarrow_table().to_pylist()
    expected = [(f"u{epoch}", epoch) for epoch in range(3)]
    assert sorted((row["user"], row["_epoch"]) for row in found) == expected
    assert sink.open(OUTPUT).upper == 3
    entries = [
        [json.loads(line) for line in (ObjectPath.of(lake.at("orders/_delta_log")) / name).read_text().splitlines()]
        for name in ObjectPath.of(lake.at("orders/_delta_log")).names()
        if name.endswith(".json")
    ]
    assert len(entries) == 3
    added = [action["add"]["path"] for actions in entries for action in actions if "add" in action]
    assert len(added) == len(set(added))


@pytest.mark.parametrize(("fault", "step", "times"), [*fault_cells(VECTOR_STEPS)])
def test_each_key_has_its_last_row_whatever_breaks_where_while_rows_are_marked(
    lake: Lake, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, fault: str, step: str, times: int
) -> None:
    monkeypatch.setattr(bykey, "SIZES", Sizes(few_rows=0, most_dead=0.9))  # however small, files are marked
    monkeypatch.setattr(vectors, "_INLINE", 0)  # and however short, vectors are in files of their own
    sink = DeltaSink(lake.at(), envelope="upsert", key="user", deletion_vectors=True)
    broken = Fault(fault, *VECTOR_STEPS[step], times=times)
    proxy.faults.append(broken)
    told: list[Transient] = []
    for epoch, users in enumerate([[f"u{n}" for n in range(8)], ["u0"], ["u1", "u0", "new"]]):
        done(sink, epoch, told, users)
    assert broken.met > 0, "nothing was broken"
    for error in told:
        assert waited_out(error), f"a run would give up: {error}"
        assert "hunter2" not in str(error)
    proxy.faults.clear()
    asked = 'SELECT "user", _epoch FROM t'
    found = pa.table(QueryBuilder().register("t", DeltaTable(lake.at())).execute(asked)).to_pylist()
    expected = {**{f"u{n}": 0 for n in range(8)}, "u1": 2, "u0": 2, "new": 2}
    assert sorted((row["user"], row["_epoch"]) for row in found) == sorted(expected.items())
    table = sink.open(OUTPUT)
    assert table.upper == 3
    assert any(file.deletions for file in table.files()), "rows are marked"
    assert len([name for name in ObjectPath.of(lake.at("orders/_delta_log")).names() if name.endswith(".json")]) == 3


@pytest.mark.parametrize(("fault", "step", "times"), [*fault_cells(PARQUET_STEPS)])
def test_each_row_of_a_parquet_table_is_there_once_whatever_breaks_where(
    lake: Lake, proxy: Proxy, fault: str, step: str, times: int
) -> None:
    sink = ParquetSink(lake.at())
    broken = Fault(fault, *PARQUET_STEPS[step], times=times)
    proxy.faults.append(broken)
    told: list[Transient] = []
    for epoch in range(3):
        done(sink, epoch, told)
    table = again(lambda: sink.open(OUTPUT), told)
    again(lambda: table.sweep(lambda: None), told)
    again(lambda: table.commit(3, 4, SCHEMA, [], write=uuid.uuid4().hex), told)
    assert broken.met > 0, "nothing was broken"
    for error in told:
        assert waited_out(error), f"a run would give up: {error}"
        assert "hunter2" not in str(error)
    proxy.faults.clear()
    expected = [(f"u{epoch}", epoch) for epoch in range(3)]
    assert sorted((row["user"], row["_epoch"]) for row in listed_rows(lake.at())) == expected
    table = sink.open(OUTPUT)
    assert (table.upper, len(table.files())) == (4, 3)
    assert len([path for path in lake.objects() if path.endswith(".parquet")]) == 3, "nothing is left behind"


def test_a_store_that_writes_over_objects_is_found_out_before_the_first_commit(lake: Lake, proxy: Proxy) -> None:
    proxy.faults.append(Fault("ignores conditions", "PUT", "_delta_log", times=100))
    sink = DeltaSink(lake.at())
    table = sink.open(OUTPUT)
    with pytest.raises(ConditionalPutIgnored):
        table.commit(0, 1, SCHEMA, staged(sink, 0), write="1" * 32)
    assert ObjectPath.of(lake.at("orders/_delta_log")).empty()
    proxy.faults.clear()
    table.commit(0, 1, SCHEMA, staged(sink, 0), write="2" * 32)
    assert sink.open(OUTPUT).upper == 1


@pytest.mark.long
def test_a_table_in_a_store_gets_checkpoints_and_is_removed_with_them(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegauge.sinks.delta.checkpoints._LEAST", 5)
    monkeypatch.setattr("tidegauge.sinks.delta.view._KEEP_EVERY", 5)
    sink = DeltaSink(lake.at())
    table = sink.open(OUTPUT)
    for epoch in range(12):
        table.commit(epoch, epoch + 1, SCHEMA, staged(sink, epoch), write=uuid.uuid4().hex)
        if isinstance(table, Finishing):
            table.end()
    names = ObjectPath.of(lake.at("orders/_delta_log")).names()
    assert [name for name in names if ".checkpoint." in name]
    assert "_tidegauge/head.json" in lake.objects()
    assert (sink.open(OUTPUT).upper, len(sink.open(OUTPUT).files())) == (12, 12)
    ObjectPath.of(lake.at("orders/_tidegauge")).clear()
    assert sink.open(OUTPUT).upper == 12
    (ObjectPath.of(lake.at()) / "notes.txt").put(b"")
    with pytest.raises(TableNotRemovable):
        sink.remove(OUTPUT)
    (ObjectPath.of(lake.at()) / "notes.txt").unlink()
    sink.remove(OUTPUT)
    assert lake.objects() == []


def done(sink: Any, epoch: int, told: list[Transient], users: Sequence[str] = ()) -> None:
    """Stage and commit an epoch as a run does, with a row of each user, or of one that only this epoch has."""
    files = again(lambda: staged(sink, epoch, users or [f"u{epoch}"]), told)
    table: Any = again(lambda: sink.open(OUTPUT), told)
    write = uuid.uuid4().hex

    def committed() -> None:
        try:
            table.commit(epoch, epoch + 1, SCHEMA, files, write=write)
        except TableUpperMismatch:
            assert table.upper == epoch + 1, "an attempt that was made is in the table, and nothing else is"

    again(committed, told)


def staged(sink: Any, epoch: int, users: Sequence[str] = ("ada",)) -> Any:
    stager = sink.stage(SCHEMA, job=OUTPUT.incarnation[-16:] + uuid.uuid4().hex[:16], task=0)
    for user in users:
        stager.write(rows([epoch], user))
    return stager.close()


def again(effect: Any, told: list[Transient]) -> Any:
    for _ in range(40):
        try:
            return effect()
        except Transient as error:
            told.append(error)
    raise AssertionError(f"it did not come to an end: {told[-1]}")
