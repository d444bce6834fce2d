"""A table by key with deletion vectors: readers of others, writers of others, killed drivers, upkeep, and VACUUM."""

from __future__ import annotations

import json
import os
import signal
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder
from tests.forked import end_of
from tests.sinks.altering import append_to_log
from tests.sinks.dying import around, die

from tidegauge.sinks import DeltaSink, OutputId, StagedFile, vectors
from tidegauge.sinks.delta import bykey, packing
from tidegauge.sinks.delta.adds import adds_at
from tidegauge.sinks.keyed.planning import Sizes
from tidegauge.sinks.location import LocalFiles
from tidegauge.sinks.protocol import job_mark
from tidegauge.sinks.vectors import VectorFile, deleted, path_of
from tidegauge.sinks.working import alone

OUTPUT = OutputId("shop", "users", "a" * 32)
SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("_epoch", pa.int64())])
MARKING = Sizes(few_rows=0, most_dead=0.9)


@pytest.fixture(autouse=True)
def marking(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small, leaves are marked; and however short, vectors are in files."""
    monkeypatch.setattr(bykey, "SIZES", MARKING)
    monkeypatch.setattr(packing, "SIZES", MARKING)
    monkeypatch.setattr(vectors, "_INLINE", 0)


def sink_in(path: str) -> DeltaSink:
    return DeltaSink(path, envelope="upsert", key="id", order="n", deletion_vectors=True)


def commit(sink: DeltaSink, table: Any, ids: Sequence[int]) -> None:
    stager = sink.stage(SCHEMA, job=job_mark(OUTPUT.incarnation) + uuid.uuid4().hex[:16], task=0)
    epoch = table.upper
    columns = {"id": list(ids), "n": [epoch * 1000 + one for one in ids], "_epoch": [epoch] * len(ids)}
    stager.write(pa.RecordBatch.from_pydict(columns, SCHEMA))
    table.commit(epoch, epoch + 1, SCHEMA, stager.close(), write=uuid.uuid4().hex)


def filled(path: str, *spans: Sequence[int]) -> tuple[DeltaSink, Any]:
    sink = sink_in(path)
    table = sink.open(OUTPUT)
    for ids in spans:
        commit(sink, table, ids)
    return sink, table


def rows(path: str, where: str = "true") -> list[tuple[int, int]]:
    """Read as delta-rs does."""
    asked = f"SELECT id, n FROM t WHERE {where} ORDER BY id"
    found = pa.table(QueryBuilder().register("t", DeltaTable(path)).execute(asked)).to_pylist()
    return [(row["id"], row["n"]) for row in found]


def by_polars(path: str, where: str = "true") -> list[tuple[int, int]]:
    return (
        pl.SQLContext(t=pl.scan_delta(path))
        .execute(f"SELECT id, n FROM t WHERE {where} ORDER BY id")
        .collect()
        .rows()
    )


def vectored(path: str) -> list[StagedFile]:
    return [file for file in sink_in(path).open(OUTPUT).files() if file.deletions]


THREE = (range(100), range(0, 100, 7), [1, 7, 200])
AFTER = sorted(
    {**{n: n for n in range(100)}, **{n: 1000 + n for n in range(0, 100, 7)}, 1: 2001, 7: 2007, 200: 2200}.items()
)
WHERE = ("true", "id < 8", "n > 1000", "id = 7", "n between 40 and 1010")


def test_readers_of_others_see_the_rows_that_are_left_with_and_without_filters(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    filled(path, *THREE)
    assert len(vectored(path)) == 2
    for checkpointed in (False, True):
        if checkpointed:
            DeltaTable(path).create_checkpoint()
        for where in WHERE:
            wanted = [row for row in AFTER if chosen(where)(*row)]
            assert rows(path, where) == by_polars(path, where) == wanted
        assert len(vectored(path)) == 2


def chosen(where: str) -> Callable[[int, int], bool]:
    return {
        "true": lambda _id, _n: True,
        "id < 8": lambda one, _n: one < 8,
        "n > 1000": lambda _id, n: n > 1000,
        "id = 7": lambda one, _n: one == 7,
        "n between 40 and 1010": lambda _id, n: 40 <= n <= 1010,
    }[where]


def test_the_protocol_gets_the_feature_and_the_statistics_are_no_tight_ends(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    filled(path, *THREE)
    protocol = DeltaTable(path).protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (3, 7)
    assert protocol.reader_features == ["deletionVectors"]
    assert sorted(protocol.writer_features or []) == ["appendOnly", "deletionVectors", "invariants"]
    adds = adds_at(tmp_path / "t" / "_delta_log", DeltaTable(path).version())
    said = [json.loads(add["stats"]) for add in adds.values() if "deletionVector" in add]
    found = sorted((one["numRecords"], one["tightBounds"], one["minValues"]["id"]) for one in said)
    assert found == [(15, False, 0), (100, False, 0)]


def test_a_table_without_the_option_is_rewritten_until_it_is_switched_on_by_whoever(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    sink = DeltaSink(path, envelope="upsert", key="id", order="n")
    table = sink.open(OUTPUT)
    for ids in THREE[:2]:
        commit(sink, table, ids)
    assert vectored(path) == []
    version = DeltaTable(path).version()
    assert version == 1
    configured = json.loads(
        next(x for x in Path(path, "_delta_log", f"{0:020d}.json").read_text().splitlines() if "metaData" in x)
    )["metaData"]
    configured["configuration"] = {"delta.enableDeletionVectors": "true"}
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
    append_to_log(path, [{"protocol": protocol}, {"metaData": configured}])
    commit(sink, table, THREE[2])
    assert len(vectored(path)) == 1
    assert rows(path) == AFTER


def mark_too(path: str, ids: Sequence[int]) -> None:
    """Delete rows by vectors as another program does."""
    log = Path(path, "_delta_log")
    out, actions = VectorFile(LocalFiles(path)), list[dict[str, Any]]()
    for add in adds_at(log, DeltaTable(path).version()).values():
        before = add.get("deletionVector")
        old = set(deleted(vectors.text_of(path, before)).tolist())
        held = pq.read_table(f"{path}/{add['path']}").column("id").to_pylist()
        new = {at for at, one in enumerate(held) if one in ids}
        if not new <= old:
            vector = out.add(np.array(sorted(old | new), np.int64))
            gone = {"path": add["path"], "deletionTimestamp": 0, "dataChange": True}
            gone |= {"deletionVector": before} if before else {}
            actions += [{"remove": gone}, {"add": {**add, "deletionVector": vector}}]
    out.close()
    append_to_log(path, [{"commitInfo": {"operation": "DELETE"}}, *actions])


def test_what_others_delete_between_our_commits_and_during_one_stays_deleted(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    sink, table = filled(path, *THREE)
    mark_too(path, [3, 7, 9])
    commit(sink, table, [3, 5])
    wanted = {**dict(AFTER), 3: 3003, 5: 3005}
    del wanted[7], wanted[9]
    assert dict(rows(path)) == wanted
    tries = list[int]()

    def workers(tasks: Any) -> Any:
        found = alone(tasks)
        if not tries:
            mark_too(path, [11, 12])
        tries.append(len(tasks))
        return found

    table.work_by(workers)
    commit(sink, table, [12, 13])
    wanted |= {12: 4012, 13: 4013}
    del wanted[11]
    assert dict(rows(path)) == wanted
    assert len(tries) == 4  # the merge was planned, and made, twice
    assert litter(path) == set()


def litter(path: str) -> set[str]:
    """Return the files of vectors that no entry of the log names."""
    actions = [json.loads(x) for e in Path(path, "_delta_log").glob("*.json") for x in e.read_text().splitlines()]
    named = {path_of(a["add"]["deletionVector"]) for a in actions if a.get("add", {}).get("deletionVector")}
    return {f"_vectors/{name}" for name in os.listdir(f"{path}/_vectors")} - {one or "" for one in named}


def dies_at(path: str, number: int) -> None:
    """Commit changes, and die at the given one of the instants around what makes files durable, and links."""
    steps = iter(range(1, 1000))

    def step(*_: object) -> None:
        if next(steps) == number:
            die()

    sink = sink_in(path)
    table = sink.open(OUTPUT)
    for name in ("create", "keep", "keep_names", "remove"):
        around(LocalFiles, name, step)
    around(os, "link", step)
    commit(sink, table, [1, 2, 3, 300])


def test_a_driver_that_is_killed_at_any_instant_leaves_the_old_rows_or_the_new_ones(tmp_path: Path) -> None:
    new = sorted({**dict(AFTER), 1: 3001, 2: 3002, 3: 3003, 300: 3300}.items())
    seen = list[bool]()
    for number in range(1, 60):
        path = str(tmp_path / f"t{number}")
        filled(path, *THREE)
        if (end := end_of(dies_at, path, number)) == 0:
            break
        assert end == -signal.SIGKILL
        found = rows(path)
        assert found in (AFTER, new)
        table: Any = sink_in(path).open(OUTPUT)
        assert table.upper == 3 + (found == new)
        seen.append(found == new)
        if found == AFTER:
            commit(sink_in(path), table, [1, 2, 3, 300])
        assert rows(path) == new
    else:
        pytest.fail("it never came through")
    assert seen == sorted(seen)
    assert {False, True} == set(seen)


def test_packing_purges_what_is_much_deleted_and_clears_vectors_past_the_retention(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    _, table = filled(path, range(100), range(50))
    upkeep = sink_in(path).maintain(OUTPUT)
    for pack in upkeep.plan():
        files = upkeep.stage(pack, job=job_mark(OUTPUT.incarnation) + uuid.uuid4().hex[:16])
        assert upkeep.commit(pack, files, write=uuid.uuid4().hex)
    assert vectored(path) == []
    wanted = {**{n: n for n in range(100)}, **{n: 1000 + n for n in range(50)}}
    assert dict(rows(path)) == wanted
    [vector] = [f"_vectors/{name}" for name in os.listdir(f"{path}/_vectors")]
    assert vector not in {one.path for one in upkeep.remnants(timedelta(0))}  # a day has to pass
    then = Path(path, vector).stat().st_mtime - 2 * 86_400
    os.utime(f"{path}/{vector}", (then, then))
    assert vector not in {one.path for one in upkeep.remnants(timedelta(days=7))}
    assert {row["id"]: row["n"] for row in held(table, as_of=1)} == wanted
    gone = [one for one in upkeep.remnants(timedelta(0)) if one.path == vector]
    upkeep.clear(gone)
    assert os.listdir(f"{path}/_vectors") == []
    assert dict(rows(path)) == wanted


def held(table: Any, *, as_of: int) -> Iterator[dict[str, Any]]:
    files = table.files(as_of=as_of)
    for file, uri in zip(files, table.uris(files), strict=True):
        for batch in vectors.live_rows(uri, SCHEMA, {}, file.deletions):
            yield from batch.to_pylist()


def test_vacuum_of_others_keeps_the_vectors(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    filled(path, *THREE)
    for full in (False, True):
        DeltaTable(path).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=full)
    assert rows(path) == AFTER


def test_a_table_that_is_made_again_takes_marked_files_out(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    sink, table = filled(path, *THREE)
    anew = table.replacement("e" * 32)
    stager = sink.stage(SCHEMA, job=job_mark(OUTPUT.incarnation) + uuid.uuid4().hex[:16], task=0)
    stager.write(pa.RecordBatch.from_pydict({"id": [5], "n": [1], "_epoch": [2]}, SCHEMA))
    anew.commit(0, 3, SCHEMA, stager.close(), write="b" * 32)
    assert rows(path) == by_polars(path) == [(5, 1)]
    commit(sink, anew, [5, 6])
    assert rows(path) == [(5, 3005), (6, 3006)]


@pytest.mark.parametrize("compacted", [False, True])
def test_what_delta_rs_rewrites_and_deletes_is_merged_into(tmp_path: Path, compacted: bool) -> None:
    path = str(tmp_path / "t")
    sink, table = filled(path, *THREE)
    if compacted:
        DeltaTable(path).optimize.compact()
    else:
        DeltaTable(path).delete("id < 5")
    commit(sink, table, [2, 50])
    wanted = {one: n for one, n in AFTER if compacted or one >= 5} | {2: 3002, 50: 3050}
    assert dict(rows(path)) == dict(by_polars(path)) == wanted


def test_it_is_removed_with_its_vectors(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    sink, _ = filled(path, *THREE)
    sink.remove(OUTPUT)
    assert not Path(path).exists()


def test_a_run_of_a_table_with_several_key_columns_marks_those_alone_that_agree_in_all(tmp_path: Path) -> None:
    schema = pa.schema([("shop", pa.string()), ("id", pa.int64()), ("_epoch", pa.int64())])
    sink = DeltaSink(str(tmp_path / "t"), envelope="upsert", key=["shop", "id"], deletion_vectors=True)
    table = sink.open(OUTPUT)
    for epoch, found in enumerate(([("a", 1), ("a", 2), ("b", 1), ("b", 3)], [("b", 1), ("a", 3)])):
        stager = sink.stage(schema, job=job_mark(OUTPUT.incarnation) + uuid.uuid4().hex[:16], task=0)
        stager.write(pa.RecordBatch.from_pylist([{"shop": s, "id": n, "_epoch": epoch} for s, n in found], schema))
        table.commit(epoch, epoch + 1, schema, stager.close(), write=uuid.uuid4().hex)
    [file] = vectored_of(table)
    assert deleted(file.deletions).tolist() == [2]


def vectored_of(table: Any) -> list[StagedFile]:
    return [file for file in table.files() if file.deletions]
