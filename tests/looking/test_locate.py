"""From a record to its rows and back: what is found, through every kind of table, and what is refused."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tidegauge as tg
from tidegauge.errors.command import (
    AmbiguousPath,
    FlowNeverRan,
    PastTheEnd,
    RowOfAnotherLife,
    RowsUnreadable,
    UnknownPartition,
)
from tidegauge.errors.flow import InvalidArgument, UnknownName
from tidegauge.errors.store import EpochBelowSince, NotYetBound
from tidegauge.looking.locate import Place, looking
from tidegauge.looking.read import trace
from tidegauge.remap.binding import Proposal
from tidegauge.remap.frontier import ORIGIN, Frontier
from tidegauge.remap.store import Lease, LeaseHolder, SourceSpec, Store

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
ENGINE = tg.LocalEngine(threads=0)


def lines(*numbers: int) -> str:
    return "".join(json.dumps({"id": n, "text": "x" * (n % 7)}) + "\n" for n in numbers)


def land(root: Path, name: str, *numbers: int) -> None:
    (root / "in").mkdir(exist_ok=True)
    with (root / "in" / name).open("a") as file:
        file.write(lines(*numbers))


def odd(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.filter(pa.array([n % 2 == 1 for n in batch["id"].to_pylist()], pa.bool_()))


def shop(root: Path) -> tg.Dataflow:
    """Orders with where they stand in a Delta and a Parquet table, others without, and an empty source besides."""
    flow = tg.Dataflow("shop", store=f"sqlite:///{root}/shop.db")
    path, lines_of = f"{root}/in/*.jsonl", tg.Json("id long, text string")
    orders = flow.source("orders", tg.FileSource(path, format=lines_of, metadata=True))
    bare = flow.source("bare", tg.FileSource(path, format=lines_of))
    rare = flow.source("rare", tg.FileSource(f"{root}/rare/*.jsonl", format=tg.Json("id long")))
    flow.sink("all", orders, tg.DeltaSink(f"{root}/lake/all"))
    flow.sink("odd", orders.map_batches(odd), tg.ParquetSink(f"{root}/lake/odd"))
    flow.sink("bare", bare, tg.ParquetSink(f"{root}/lake/bare"))
    flow.sink("rare", rare, tg.ParquetSink(f"{root}/lake/rare"))
    return flow


def fill(root: Path) -> tg.Dataflow:
    """Three epochs, of two files; nothing odd in the second."""
    flow = shop(root)
    for landing in ({"a": (1, 2), "b": (3,)}, {"b": (4, 6)}, {"a": (5,), "b": (7, 8)}):
        for name, numbers in landing.items():
            land(root, f"{name}.jsonl", *numbers)
        flow.run(until="caught-up", engine=ENGINE)
    return flow


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[tg.Dataflow, Path]:
    """A flow that nobody changes."""
    root = tmp_path_factory.mktemp("shop")
    return fill(root), root


@pytest.fixture
def flow(filled: tuple[tg.Dataflow, Path]) -> tg.Dataflow:
    return filled[0]


@pytest.fixture
def root(filled: tuple[tg.Dataflow, Path]) -> Path:
    return filled[1]


def rows(flow: tg.Dataflow, output: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tg.read_arrow(flow, output).to_pylist()
    return sorted(found, key=lambda row: row["id"])


def test_every_row_leads_to_its_record_and_every_record_to_the_same_place(flow: tg.Dataflow) -> None:
    epochs = [record for record, _ in tg.epochs(flow)]
    for output, count in (("all", 8), ("odd", 4)):
        found = rows(flow, output)
        assert len(found) == count
        for row in found:
            origin = tg.origin(flow, output, row)
            place = tg.locate(flow, "orders", row["_partition"], row["_offset"])
            assert origin.place == place
            assert (origin.exact, place.exact, place.incarnation) == (True, True, 0)
            assert (origin.source, origin.epoch, place.epoch) == ("orders", row["_epoch"], row["_epoch"])
            with Path(place.path).open("rb") as file:
                file.seek(place.position)
                assert json.loads(file.readline())["id"] == row["id"]
            [piece] = origin.slices
            assert piece.lower <= place.position < piece.upper
            record = epochs[place.epoch]
            assert (place.minted_at, place.published_at) == (record.minted_at, record.published_at)
            assert (origin.minted_at, origin.published_at) == (record.minted_at, record.published_at)


def test_the_tables_of_a_place_are_those_of_its_source_with_the_commit_that_brought_the_epoch(
    flow: tg.Dataflow, root: Path
) -> None:
    for row in rows(flow, "all"):
        place = tg.locate(flow, "orders", row["_partition"], row["_offset"])
        delta, parquet = place.tables
        assert (delta.output, parquet.output) == ("all", "odd")
        assert delta.version is not None
        assert parquet.version is not None
        now, before = (Path(root, "lake", "all"), int(delta.version)), int(delta.version) - 1
        held = pq.ParquetDataset(DeltaTable(*now).file_uris(), filters=[("_epoch", "=", place.epoch)]).read()
        assert row["id"] in held["id"].to_pylist()
        assert delta.rows == held.num_rows
        if before >= 0:
            older = DeltaTable(now[0], version=before).file_uris()
            assert pq.ParquetDataset(older, filters=[("_epoch", "=", place.epoch)]).read().num_rows == 0
        folder = root / "lake" / "odd" / parquet.version
        committed = [n for file in folder.glob("*.parquet") for n in pq.read_table(file)["id"].to_pylist()]
        assert (row["id"] in committed) == (row["id"] % 2 == 1)
        assert parquet.rows == [2, 0, 2][place.epoch]
        assert (delta.holds, parquet.holds) == (True, True)


def test_a_file_may_be_named_by_its_path_also_from_the_folder_that_one_is_in(
    flow: tg.Dataflow, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root / "in")
    for row in rows(flow, "all")[:3:2]:
        place = tg.locate(flow, "orders", row["_partition"], row["_offset"])
        for path in (place.path, os.path.relpath(place.path), f"../in/{Path(place.path).name}"):
            assert tg.locate(flow, "orders", path, row["_offset"]) == place


def test_a_position_within_a_record_is_that_records(flow: tg.Dataflow) -> None:
    first, second = (row for row in rows(flow, "all") if row["id"] in (1, 2))
    epochs = [tg.locate(flow, "orders", first["_partition"], at).epoch for at in (0, 1, second["_offset"])]
    assert epochs == [0, 0, 0]


def test_without_metadata_a_row_leads_to_the_ranges_of_its_epoch(flow: tg.Dataflow) -> None:
    for row in rows(flow, "bare")[::3]:
        origin = tg.origin(flow, "bare", row)
        assert (origin.exact, origin.place, origin.source) == (False, None, "bare")
        explained = [s for s in tg.explain(flow, row["_epoch"]).slices if s.source == "bare"]
        assert list(origin.slices) == explained
        assert any(
            json.dumps({"id": row["id"]})[:-1].encode() in Path(str(s.detail["path"])).read_bytes()[s.lower : s.upper]
            for s in origin.slices
        )


def test_a_row_of_some_columns_alone_leads_as_far_as_they_say(flow: tg.Dataflow) -> None:
    row = rows(flow, "all")[0]
    assert not tg.origin(flow, "all", {"_epoch": row["_epoch"]}).exact
    assert not tg.origin(flow, "all", {"_epoch": row["_epoch"], "_partition": row["_partition"]}).exact
    assert tg.origin(flow, "all", {name: row[name] for name in ("_epoch", "_partition", "_offset")}).exact
    assert tg.origin(flow, "all", pa.Table.from_pylist([row]).to_pandas().iloc[0].to_dict()).exact


def test_a_row_that_the_timeline_does_not_have_is_refused(flow: tg.Dataflow) -> None:
    row = next(row for row in rows(flow, "all") if row["id"] == 4)
    assert row["_epoch"] == 1
    for wrong in (
        {"_epoch": 0},
        {"_epoch": 2},
        {"_epoch": 3},
        {"_epoch": -1},
        {"_epoch": 2**200},
        {"_partition": "0" * 16},
        {"_partition": 7},
        {"_partition": "\0\udcff"},
        {"_offset": 0},
        {"_offset": 10**6},
        {"_offset": -1},
        {"_offset": 2**200},
    ):
        with pytest.raises(RowOfAnotherLife) as caught:
            tg.origin(flow, "all", {**row, **wrong})
        assert caught.value.evidence["epoch"] == wrong.get("_epoch", 1)
    with pytest.raises(RowOfAnotherLife, match="no such record of 'rare'"):
        tg.origin(flow, "rare", {"_epoch": 1})  # in which that source has nothing


def test_what_is_no_row_is_refused(flow: tg.Dataflow) -> None:
    texts: list[Any] = [None, 7, [("_epoch", 1)], {}, {"id": 1}, {"_epoch": None}, {"_epoch": "1"}, {"_epoch": 1.0}]
    for wrong in [*texts, {"_epoch": True}, {"_epoch": 1, "_partition": "a", "_offset": "0"}]:
        with pytest.raises(InvalidArgument):
            tg.origin(flow, "all", wrong)
    with pytest.raises(UnknownName, match="'all', 'bare', 'odd'"):
        tg.origin(flow, "al", {"_epoch": 1})
    with pytest.raises(InvalidArgument):
        tg.origin(flow, ["all"], {"_epoch": 1})  # type: ignore[arg-type]


def test_what_is_no_place_is_refused(flow: tg.Dataflow, root: Path) -> None:
    path = str(root / "in" / "a.jsonl")
    with pytest.raises(UnknownName, match="'bare', 'orders', 'rare'"):
        tg.locate(flow, "order", path, 0)
    for wrong in ("", "0" * 16, "\0", "\udcff", "x" * 10**6, str(root / "in"), str(root / "in" / "c.jsonl")):
        with pytest.raises(UnknownPartition) as caught:
            tg.locate(flow, "orders", wrong, 0)
        assert len(str(caught.value)) < 1000
    with pytest.raises(UnknownPartition, match=r"the nearest is '.*/in/a\.jsonl'"):
        tg.locate(flow, "orders", str(root / "in" / "aa.jsonl"), 0)
    for position in (10**6, 2**63, 2**200):
        with pytest.raises(NotYetBound):
            tg.locate(flow, "orders", path, position)
    positions: list[Any] = [-1, "0", 0.0, True, None]
    names: list[Any] = [(None, path), ("orders", None), ("orders", ["a"]), (["orders"], path)]
    for source, partition, position in [*(("orders", path, p) for p in positions), *((s, p, 0) for s, p in names)]:
        with pytest.raises(InvalidArgument):
            tg.locate(flow, source, partition, position)


def test_a_flow_that_never_ran_has_no_places(tmp_path: Path) -> None:
    flow = shop(tmp_path)
    with pytest.raises(FlowNeverRan):
        tg.locate(flow, "orders", "a", 0)
    with pytest.raises(FlowNeverRan):
        tg.origin(flow, "all", {"_epoch": 0})
    assert list(tmp_path.iterdir()) == []


def test_beyond_the_end_of_a_source_that_has_ended_there_is_nothing(tmp_path: Path) -> None:
    flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/shop.db")
    visits = flow.source("visits", tg.GeneratorSource(5, columns="id long", max_records_per_epoch=3, metadata=True))
    flow.sink("visits", visits, tg.DeltaSink(f"{tmp_path}/visits"))
    flow.run(engine=ENGINE)
    assert [tg.locate(flow, "visits", "shard-0", at).epoch for at in range(5)] == [0, 0, 0, 1, 1]
    with pytest.raises(PastTheEnd, match="it ended at 5"):
        tg.locate(flow, "visits", "shard-0", 5)
    with pytest.raises(UnknownPartition):
        tg.locate(flow, "visits", "shard-1", 0)


def test_an_output_that_lacks_the_epoch_and_one_that_was_never_written_say_so(tmp_path: Path) -> None:
    fails: list[int] = []

    def made(*, late: bool) -> tg.Dataflow:
        def refuse(batch: pa.RecordBatch) -> pa.RecordBatch:
            return batch.slice(0, 1 // (0 if fails and batch.num_rows else 1))

        flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/shop.db")
        files = flow.source("orders", tg.FileSource(f"{tmp_path}/in/*", format=tg.Json("id long"), metadata=True))
        flow.sink("all", files, tg.DeltaSink(f"{tmp_path}/all"))
        flow.sink("weak", files.map_batches(refuse), tg.ParquetSink(f"{tmp_path}/weak"))
        if late:
            flow.sink("late", files, tg.ParquetSink(f"{tmp_path}/late"))
        return flow

    land(tmp_path, "a", 1)
    made(late=False).run(until="caught-up", engine=ENGINE)
    fails.append(2)
    land(tmp_path, "a", 2)
    with pytest.raises(tg.TidegaugeError, match="TG-0110"):
        made(late=False).run(until="caught-up", engine=ENGINE)
    flow = made(late=True)
    row = rows(flow, "all")[1]
    tables = tg.locate(flow, "orders", row["_partition"], row["_offset"]).tables
    assert [(t.output, t.holds, t.version, t.rows, t.error) for t in tables] == [
        ("all", True, "1", 1, None),
        ("weak", False, None, 0, None),
        ("late", False, None, 0, None),
    ]


def test_a_table_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    flow = fill(tmp_path)
    row = rows(flow, "all")[0]
    (tmp_path / "lake" / "odd" / "from_epoch=000000000000" / "_manifest.json").write_text("{")
    delta, parquet = tg.locate(flow, "orders", row["_partition"], row["_offset"]).tables
    assert (delta.holds, delta.version, delta.rows, delta.error) == (True, "0", 3, None)
    assert (parquet.holds, parquet.version, parquet.rows) == (False, None, None)
    assert parquet.error is not None
    assert parquet.error.code == "TG-0412"


@pytest.mark.parametrize("harm", [Path.unlink, lambda path: path.write_bytes(b"PAR1")])
def test_a_data_file_that_is_gone_or_damaged_leaves_what_the_log_knows(tmp_path: Path, harm: Any) -> None:
    flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/shop.db")
    visits = flow.source("visits", tg.GeneratorSource(4, columns="id long", max_records_per_epoch=2, metadata=True))
    flow.sink("visits", visits, tg.DeltaSink(f"{tmp_path}/visits"))
    flow.run(engine=ENGINE)
    DeltaTable(tmp_path / "visits").optimize.compact()
    [merged] = DeltaTable(tmp_path / "visits").file_uris()  # of two epochs: to count one's rows it is read
    harm(Path(merged.removeprefix("file://")))
    [table] = tg.locate(flow, "visits", "shard-0", 3).tables
    assert (table.holds, table.version, table.rows) == (True, "1", None)
    assert table.error is not None
    assert table.error.code == "TG-0616"
    with pytest.raises(RowsUnreadable):
        trace(flow, "visits", {"_offset": "3"}, limit=20)


def test_rows_that_were_written_before_the_store_was_made_anew_are_of_another_life(tmp_path: Path) -> None:
    flow = fill(tmp_path)
    row = rows(flow, "all")[-1]
    assert row["_epoch"] == 2
    for part in tmp_path.glob("shop.db*"):
        part.unlink()
    for table in ("all", "odd", "bare"):
        (tmp_path / "lake" / table).rename(tmp_path / f"old-{table}")
    flow.run(until="caught-up", engine=ENGINE)
    with pytest.raises(RowOfAnotherLife, match="the epochs are those below 1"):
        tg.origin(flow, "all", row)


# -- histories that are told by hand


@dataclass
class Told:
    """A flow whose bindings are told by hand; it has no tables."""

    store: Store
    lease: Lease
    flow: tg.Dataflow
    at: Frontier = ORIGIN
    upper: int = 0
    minted: list[datetime] = field(default_factory=list)

    def bind(self, moves: dict[str, int], **details: str) -> None:
        self.at = Frontier({**self.at, **{p: self.at[p] + n for p, n in moves.items()}})
        paths = {partition: {"path": path} for partition, path in details.items()}
        proposal = {"orders": Proposal(frontier=self.at, details=paths)} if moves else {}
        self.store.append(
            self.lease, expected=self.upper, at=NOON + timedelta(seconds=self.upper), proposals=proposal
        )
        self.upper += 1

    def compact(self, since: int) -> None:
        published = self.store.load("shop").flow.published
        self.store.publish(self.lease, expected=published, upper=self.upper, at=NOON + timedelta(days=1))
        self.store.advance_since(self.lease, since)

    def begin_again(self) -> None:
        self.store.begin_incarnation(self.lease, "orders", at=NOON, reason="recreated")
        self.at = ORIGIN

    def place(self, partition: str, position: int) -> Place:
        return tg.locate(self.flow, "orders", partition, position)

    def row(self, epoch: int, partition: str, position: int) -> Place:
        said = {"_epoch": epoch, "_partition": partition, "_offset": position}
        place = tg.origin(self.flow, "all", said).place
        assert place is not None
        return place


@pytest.fixture
def tell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Told]]:
    opened: list[Store] = []

    def make() -> Told:
        root = tmp_path_factory.mktemp("told")
        flow = tg.Dataflow("shop", store=f"sqlite:///{root}/shop.db")
        orders = flow.source("orders", tg.GeneratorSource(5, columns="id long"))
        flow.sink("all", orders, tg.ParquetSink(f"{root}/lake"))
        store = Store.open(flow.store, env=tg.Env())
        opened.append(store)
        lease = store.acquire("shop", holder=LeaseHolder.current(tg.Env()))
        store.register(lease, sources={"orders": SourceSpec({})}, outputs={})
        return Told(store, lease, flow)

    yield make
    for store in opened:
        store.close()


moves = st.lists(st.dictionaries(st.sampled_from(["p0", "p1"]), st.integers(1, 3)), min_size=1, max_size=5)


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(moves, st.data())
def test_only_the_right_epoch_of_a_record_is_believed_and_after_compaction_one_that_may_be_right(
    tell: Callable[[], Told], history: list[dict[str, int]], data: st.DataObject
) -> None:
    told, truth = tell(), dict[tuple[str, int], int]()
    for moved in history:
        for partition, size in moved.items():
            truth |= {(partition, told.at[partition] + n): told.upper for n in range(size)}
        told.bind(moved)
    since = data.draw(st.integers(0, told.upper - 1))
    if since:
        told.compact(since)
    with looking(told.flow.spec) as look:
        for (partition, position), epoch in truth.items():
            place = look.locate("orders", partition, position)
            assert (place.epoch, place.exact) == (max(epoch, since), epoch > since or since == 0)
            for said in range(told.upper):
                row = {"_epoch": said, "_partition": partition, "_offset": position}
                if max(said, since) == max(epoch, since):
                    back = look.origin("all", row).place
                    assert back is not None
                    assert (back.epoch, back.exact) == (said, said > since or since == 0)
                else:
                    with pytest.raises(EpochBelowSince if said < since else RowOfAnotherLife):
                        look.origin("all", row)


def test_a_path_that_several_files_had_names_none_of_them_and_their_keys_do(tell: Callable[[], Told]) -> None:
    told = tell()
    told.bind({"f1": 5}, f1="/in/a.jsonl")
    told.bind({"f2": 3}, f2="/in/a.jsonl")
    with pytest.raises(AmbiguousPath) as caught:
        told.place("/in/a.jsonl", 0)
    assert caught.value.evidence["partitions"] == ["f1", "f2"]
    assert [(told.place(key, 0).epoch, told.place(key, 0).path) for key in ("f1", "f2")] == [
        (0, "/in/a.jsonl"),
        (1, "/in/a.jsonl"),
    ]


def test_a_key_comes_before_a_path_that_reads_the_same(tell: Callable[[], Told]) -> None:
    told = tell()
    told.bind({"a": 1})
    told.bind({"b": 1}, b="a")
    assert told.place("a", 0).partition == "a"


def test_a_position_that_begins_again_is_the_newest_incarnations_and_a_rows_that_of_its_epoch(
    tell: Callable[[], Told],
) -> None:
    told = tell()
    told.bind({"p0": 5})
    told.bind({"p0": 5})
    told.begin_again()
    told.bind({"p0": 2})
    told.bind({"p0": 2})
    found = [told.place("p0", at) for at in (0, 2, 4, 9)]
    assert [(place.epoch, place.incarnation) for place in found] == [(2, 1), (3, 1), (0, 0), (1, 0)]
    for epoch, position, incarnation in ((0, 0, 0), (1, 9, 0), (2, 0, 1), (3, 2, 1)):
        assert told.row(epoch, "p0", position).incarnation == incarnation
    for epoch, position in ((1, 0), (3, 0), (2, 4), (3, 9)):
        with pytest.raises(RowOfAnotherLife):
            told.row(epoch, "p0", position)


def test_an_incarnation_of_which_all_was_compacted_is_no_longer_looked_into(tell: Callable[[], Told]) -> None:
    told = tell()
    told.bind({"p0": 5})
    told.bind({"p0": 5})
    told.begin_again()
    told.bind({"p0": 2})
    told.bind({"p0": 2})
    told.compact(3)
    assert [(told.place("p0", at).epoch, told.place("p0", at).exact) for at in (0, 3)] == [(3, False), (3, False)]
    with pytest.raises(EpochBelowSince):
        told.row(1, "p0", 9)


def test_an_epoch_is_told_although_its_time_is_not_there(tell: Callable[[], Told]) -> None:
    told = tell()
    told.bind({"p0": 5})
    told.bind({})
    assert (told.place("p0", 0).minted_at, told.place("p0", 0).published_at) == (NOON, None)
    with pytest.raises(RowOfAnotherLife):
        told.row(1, "p0", 0)
