"""Laws of topics of changes: the tables are the dictionary, however messages are cut, read again, and interleaved."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.depth import deep
from tests.enveloped import HAPPENINGS, PARTITIONS, Changes, Happening, Meaning
from tests.postgres import Server, new_database
from tests.sinks.postgres.conftest import seen

import tidegauge as tg
from tidegauge.errors.changes import TableTruncated, ValueUnavailable
from tidegauge.errors.command import OutputHasFailed
from tidegauge.errors.engine import RecordUnparsable
from tidegauge.errors.store import SchemaChanged
from tidegauge.sources.kafka.enveloping import Envelope

pc: Any = pyarrow.compute

NONE: Final[Mapping[str, Any]] = MappingProxyType({})
UNPLACED = ("TG-0454", "TG-0455", "TG-0456")


def by_key(root: Path, name: str, **more: Any) -> tg.DeltaSink:
    return tg.DeltaSink(str(root / name), envelope="upsert", key="id", order="_offset", **more)


def errors(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return changes of the errors by key: one is there from a bad value to the next message of its key."""
    words = pc.if_else(pc.is_valid(batch["_error"]), "update", "delete")
    return batch.set_column(batch.schema.get_field_index("_op"), "_op", words)


def flow_of(
    root: Path, source: Any, *, late: bool = False, collected: bool = True, also: Mapping[str, Any] = NONE
) -> tg.Dataflow:
    """Users by key, the keys that have a bad value, and the bad records; perhaps users once more, added late.

    also: sinks for users besides.
    """
    flow = tg.Dataflow("shop", store=f"sqlite:///{root}/shop.db", tick=0.02)
    users = flow.source("users", source)
    flow.sink("users", users, by_key(root, "users"))
    flow.sink("broken", users.map_batches(errors), by_key(root, "broken"))
    if collected:
        flow.sink("bad", users.errors, tg.ParquetSink(str(root / "bad")))
    if late:
        also = {**also, "late": by_key(root, "late")}
    for name, sink in also.items():
        flow.sink(name, users.select("id", "name", "n", "_partition", "_offset"), sink)
    return flow


def unplaced(flow: tg.Dataflow) -> set[bytes | None]:
    """The bytes that are a bad key, by the last that was said of each in its partition."""
    last: dict[bytes | None, tuple[int, str]] = {}
    for row in tg.read_arrow(flow, "bad").to_pylist():
        if row["code"] in UNPLACED:
            last[row["key"]] = max(last.get(row["key"], (-1, "")), (row["position"], row["code"]))
    return {key for key, (_, code) in last.items() if code != "TG-0456"}


def check(flow: tg.Dataflow, meaning: Meaning, *tables: str) -> None:
    for table in tables:
        found = tg.read_arrow(flow, table).to_pylist()
        assert {row["id"]: (row["name"], row["n"]) for row in found} == meaning.rows
        assert len(found) == len(meaning.rows)
    broken = tg.read_arrow(flow, "broken").to_pylist()
    assert sorted(row["id"] for row in broken) == sorted(meaning.broken)
    assert all(row["_error"].startswith("TG-0") for row in broken)
    assert unplaced(flow) == meaning.unplaced


def partition_of(one: Happening) -> int:
    return one.partition if one.placed else one.id % 2  # its bytes decide


def written(source: Changes, epoch: Sequence[Happening], chance: random.Random) -> None:
    """Write what happens in an epoch: the partitions in any order, each in its own."""
    waiting = {number: [one for one in epoch if partition_of(one) == number] for number in range(PARTITIONS)}
    while left := [number for number, those in waiting.items() if those]:
        number = chance.choice(left)
        source.write(number, waiting[number].pop(0).messages(source.envelope))


@deep(8)
@given(
    envelope=st.sampled_from(["upsert", "debezium"]),
    epochs=st.lists(st.lists(HAPPENINGS, min_size=1, max_size=8), min_size=1, max_size=4),
    batch=st.integers(1, 5),
    stumbles=st.integers(0, 2),
    chance=st.randoms(use_true_random=False),
)
def test_t59_t60_tables_by_key_are_the_dictionary_however_messages_come(
    envelope: Envelope, epochs: list[list[Happening]], batch: int, stumbles: int, chance: random.Random
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root, meaning = Path(folder), Meaning()
        source = Changes(root, envelope, batch, stumbles)
        flow = flow_of(root, source)
        for epoch in epochs:
            written(source, epoch, chance)
            for one in epoch:
                meaning.take(one)
            flow = flow_of(root, source)
            flow.run("caught-up", engine=tg.LocalEngine(threads=0))
            check(flow, meaning, "users")
        flow = flow_of(root, source, late=True)
        flow.run("caught-up", engine=tg.LocalEngine(threads=0))
        check(flow, meaning, "users", "late")


@pytest.mark.long  # a real server
@deep(4)
@given(
    envelope=st.sampled_from(["upsert", "debezium"]),
    epochs=st.lists(st.lists(HAPPENINGS, min_size=1, max_size=8), min_size=1, max_size=3),
    stumbles=st.integers(0, 2),
    chance=st.randoms(use_true_random=False),
)
def test_t60_tables_on_a_server_are_the_dictionary_too(
    postgres: Server, envelope: Envelope, epochs: list[list[Happening]], stumbles: int, chance: random.Random
) -> None:
    address = postgres.address(new_database(postgres))

    def server(root: Path, table: str) -> tg.PostgresSink:
        how: dict[str, Any] = {"envelope": "upsert", "key": "id", "order": "_offset"}
        return tg.PostgresSink(address, table, staging=str(root / "staging"), **how)

    with tempfile.TemporaryDirectory() as folder:
        root, meaning = Path(folder), Meaning()
        source = Changes(root, envelope, 3, stumbles)
        also = {"served": server(root, "served")}
        for number, epoch in enumerate(epochs, start=1):
            written(source, epoch, chance)
            for one in epoch:
                meaning.take(one)
            if number == len(epochs):
                also["late_one"] = server(root, "late_one")
            flow_of(root, source, also=also).run("caught-up", engine=tg.LocalEngine(threads=0))
        for table in also:
            found = seen(address, table)
            assert {row["id"]: (row["name"], row["n"]) for row in found} == meaning.rows
            assert len(found) == len(meaning.rows)


def happening(what: str, id: int = 2, n: int = 0) -> Happening:
    return Happening(what, id, n, wrapped=False, op="c", told=False)


@pytest.mark.parametrize("ends", ["put", "gone"])
def test_t60_an_error_is_there_from_the_bad_value_to_the_next_good_one_or_tombstone(
    tmp_path: Path, ends: str
) -> None:
    source, meaning = Changes(tmp_path, "upsert"), Meaning()
    steps = [happening("put"), happening("bad value"), happening(ends, n=3)]
    seen = []
    for one in steps:
        source.write(0, one.messages("upsert"))
        meaning.take(one)
        flow = flow_of(tmp_path, source)
        flow.run("caught-up", engine=tg.LocalEngine(threads=0))
        check(flow, meaning, "users")
        seen.append((len(meaning.rows), len(meaning.broken)))
    assert seen == [(1, 0), (0, 1), (1 if ends == "put" else 0, 0)]
    assert tg.read_arrow(flow, "users", as_of=0).num_rows == 1
    assert tg.read_arrow(flow, "users", as_of=1).num_rows == 0
    assert tg.read_arrow(flow, "broken", as_of=1).num_rows == 1


def test_t60_where_bad_records_are_not_collected_no_epoch_shows_the_old_row_as_if_it_were_right(
    tmp_path: Path,
) -> None:
    source, meaning = Changes(tmp_path, "debezium"), Meaning()
    flow = flow_of(tmp_path, source, collected=False)
    for one in (happening("withdrawn"), happening("put")):  # nobody collects what is taken back: no harm
        source.write(0, one.messages("debezium"))
    flow.run("caught-up", engine=tg.LocalEngine(threads=0))
    source.write(0, happening("bad value", n=2).messages("debezium"))
    with pytest.raises(RecordUnparsable, match="its op is 'm'"):
        flow_of(tmp_path, source, collected=False).run("caught-up", engine=tg.LocalEngine(threads=0))
    assert tg.read_arrow(flow, "users", as_of=0).num_rows == 1
    with pytest.raises(OutputHasFailed, match="TG-0607"):
        tg.read_arrow(flow, "users", as_of=1)
    for one in (happening("withdrawn"), happening("put"), happening("bad value")):
        meaning.take(one)
    flow = flow_of(tmp_path, source)
    flow.run("caught-up", engine=tg.LocalEngine(threads=0))
    check(flow, meaning, "users")


UNSENT = b'{"op": "u", "after": {"name": "__debezium_unavailable_value", "n": 7}}'


@pytest.mark.parametrize(
    ("pair", "code"),
    [
        ((b'{"id": 2}', UNSENT), "TG-0458"),
        pytest.param((None, b'{"op": "t"}'), "TG-0459", marks=pytest.mark.long),
    ],
)
def test_what_no_table_by_key_can_take_stops_the_source_and_the_row_stays_until_somebody_decides(
    tmp_path: Path, pair: tuple[bytes | None, bytes], code: str
) -> None:
    source, meaning = Changes(tmp_path, "debezium"), Meaning()
    put, later = happening("put"), happening("put", n=3)
    source.write(0, put.messages("debezium"))
    meaning.take(put)
    flow = flow_of(tmp_path, source)
    flow.run("caught-up", engine=tg.LocalEngine(threads=0))
    source.write(0, [pair, *happening("bad value", id=4).messages("debezium")])
    for _again in range(2):
        with pytest.raises((ValueUnavailable, TableTruncated), match="at position 1 of 't-0'") as raised:
            flow_of(tmp_path, source).run("caught-up", engine=tg.LocalEngine(threads=0))
        assert raised.value.code == code
    assert [row["n"] for row in tg.read_arrow(flow, "users").to_pylist()] == [0]
    assert tg.skip(flow_of(tmp_path, source), "users", "t-0", 1, 2).lifted
    meaning.take(happening("bad value", id=4))
    flow = flow_of(tmp_path, source)
    flow.run("caught-up", engine=tg.LocalEngine(threads=0))
    check(flow, meaning, "users")
    source.write(0, later.messages("debezium"))
    meaning.take(later)
    flow = flow_of(tmp_path, source, late=True)
    flow.run("caught-up", engine=tg.LocalEngine(threads=0))
    check(flow, meaning, "users", "late")


def test_another_envelope_is_refused_though_its_columns_are_the_same(tmp_path: Path) -> None:
    def run(source: Changes) -> tg.Dataflow:
        flow = flow_of(tmp_path, source)
        flow.run("caught-up", engine=tg.LocalEngine(threads=0))
        return flow

    source = Changes(tmp_path, "upsert")
    source.write(0, happening("put").messages("upsert"))
    run(source)
    source.write(0, happening("put", n=3).messages("upsert"))
    with pytest.raises(SchemaChanged, match="envelope: upsert -> debezium"):
        run(replace(source, envelope="debezium"))
    assert [row["n"] for row in tg.read_arrow(run(source), "users").to_pylist()] == [3]


def replayed(changes: list[dict[str, Any]]) -> dict[int, tuple[str, int]]:
    """Return the rows by key that all changes make, in order."""
    rows: dict[int, tuple[str, int]] = {}
    for one in sorted(changes, key=lambda one: (one["_partition"], one["_offset"])):
        if one["op"] == "delete":
            rows.pop(one["id"], None)
        elif one["op"] != "before":
            rows[one["id"]] = one["name"], one["n"]
    return rows


@deep(4)
@given(
    epochs=st.lists(st.lists(HAPPENINGS, min_size=1, max_size=8), min_size=1, max_size=3),
    batch=st.integers(1, 5),
    stumbles=st.integers(0, 2),
    chance=st.randoms(use_true_random=False),
)
def test_all_changes_are_kept_each_once_and_make_the_dictionary(
    epochs: list[list[Happening]], batch: int, stumbles: int, chance: random.Random
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root, meaning, count = Path(folder), Meaning(), 0
        source = Changes(root, "cdc", batch, stumbles)
        for number in range(len(epochs) + 1):
            flow = tg.Dataflow("shop", store=f"sqlite:///{root}/shop.db", tick=0.02)
            users = flow.source("users", source)
            flow.sink("bad", users.errors, tg.ParquetSink(str(root / "bad")))
            tables = ["changes", "late"] if number == len(epochs) else ["changes"]
            for table in tables:
                flow.sink(table, users, tg.DeltaSink(str(root / table)))
            for one in epochs[number] if number < len(epochs) else []:
                source.write(partition_of(one), one.messages("cdc"))
                if one.what != "bad value":  # it says nothing, and what was before stays
                    meaning.take(one)
                count += one.what in ("put", "gone")
                count += one.what == "put" and one.op == "u" and one.told
            flow.run("caught-up", engine=tg.LocalEngine(threads=0))
            for table in tables:
                changes = tg.read_arrow(flow, table).to_pylist()
                assert (replayed(changes), len(changes)) == (meaning.rows, count)
            assert unplaced(flow) == meaning.unplaced


def test_a_table_of_all_changes_has_each_once_whatever_is_read_again(tmp_path: Path) -> None:
    source = Changes(tmp_path, "cdc", batch=2, stumbles=2)
    every = [Happening("put", 2, n, wrapped=n % 2 == 0, op="cur"[n % 3], told=n % 4 == 1) for n in range(9)]
    every += [Happening("gone", 2, 9, wrapped=True, op="c", told=True), happening("bad value", n=1)]
    for at in range(0, len(every), 4):
        source.write(0, [message for one in every[at : at + 4] for message in one.messages("cdc")])
        flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/shop.db", tick=0.02)
        users = flow.source("users", source)
        flow.sink("changes", users, tg.DeltaSink(str(tmp_path / "changes")))
        flow.sink("large", users.filter("n > 4").filter("op <> 'before'"), tg.DeltaSink(str(tmp_path / "large")))
        flow.sink("bad", users.errors, tg.ParquetSink(str(tmp_path / "bad")))
        flow.run("caught-up", engine=tg.LocalEngine(threads=0))
    found = tg.read_arrow(flow, "changes").to_pylist()
    in_order = sorted(found, key=lambda row: (row["_offset"], row["op"]))
    wanted = []
    for one in every[:-1]:
        word = {"c": "insert", "u": "update", "r": "read"}[one.op]
        if one.what == "put":
            wanted += [("before", one.n)] if one.told and one.op == "u" else []
            wanted += [(word, one.n)]
        else:
            wanted += [("delete", one.n)]
    assert [(row["op"], row["n"]) for row in in_order] == wanted
    assert sorted(row["n"] for row in tg.read_arrow(flow, "large").to_pylist()) == [5, 6, 7, 8, 9]
    assert tg.read_arrow(flow, "bad").num_rows == 1
