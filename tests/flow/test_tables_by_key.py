"""Tables by key in a flow: live and late, made again, read as of an epoch, and what others do to them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.sinks.altering import alter, delete_first_row

import tidegauge as tg
from tidegauge.errors.flow import InvalidArgument, OperationsNotTaken
from tidegauge.errors.history import OnlyAppended
from tidegauge.errors.kafkasink import KeyMissing, LastUndecided
from tidegauge.errors.outputs import PastNotThere
from tidegauge.errors.sinks import (
    EpochReplaced,
    KeptOtherwise,
    KeyedColumnUnfit,
    LeafUnreadable,
    TableChangedByOthers,
)
from tidegauge.looking.read import trace
from tidegauge.sinks import StagedFile
from tidegauge.sinks.delta import bykey
from tidegauge.sinks.keyed.planning import Sizes

COLUMNS = "id long, name string, gone boolean, score double"
ROWS = {"id", "name", "_epoch"}


@dataclass
class Shop:
    """A flow over one file that grows, epoch by epoch. sinks: its outputs by name. columns: the file's."""

    root: Path
    sinks: dict[str, Any] = field(default_factory=dict)
    columns: str = COLUMNS
    how: dict[str, dict[str, Any]] = field(default_factory=dict)
    steps: Callable[[Any], Any] = lambda stream: stream

    def sink(self, name: str = "users", **options: Any) -> tg.DeltaSink:
        return tg.DeltaSink(f"{self.root}/lake/{name}", **{"envelope": "upsert", "key": "id", **options})

    @property
    def flow(self) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=f"sqlite:///{self.root}/shop.db", tick=0.02)
        file = tg.FileSource(f"{self.root}/users.jsonl", format=tg.Json(self.columns), metadata=True)
        users = self.steps(flow.source("users", file))
        for name, sink in (self.sinks or {"users": self.sink(order="_offset")}).items():
            flow.sink(name, users, sink, **self.how.get(name, {}))
        return flow

    def add(self, *rows: dict[str, Any]) -> None:
        """Add rows as an epoch of their own."""
        with (self.root / "users.jsonl").open("a") as file:
            file.write("".join(json.dumps(row) + "\n" for row in rows))

    def run(self, *rows: dict[str, Any], engine: Any = None) -> int:
        self.add(*rows)
        return self.flow.run("caught-up", engine=engine or tg.LocalEngine(threads=0)).published

    def read(self, output: str = "users", **how: Any) -> dict[int, tuple[Any, int]]:
        found = tg.read_arrow(self.flow, output, **how).to_pylist()
        assert len({row["id"] for row in found}) == len(found)
        return {row["id"]: (row["name"], row["_epoch"]) for row in found}

    def state(self, output: str = "users") -> Any:
        return next(one for one in tg.status(self.flow).outputs if one.name == output)


def user(id: int | None, name: str | None = None, **more: Any) -> dict[str, Any]:
    return {"id": id, "name": name, **more}


THREE: Sequence[Sequence[dict[str, Any]]] = (
    [user(1, "ada"), user(2, "bob"), user(1, "ada!")],
    [user(3, "eve"), user(2, gone=True)],
    [user(2, "bob again"), user(3, "eve!"), user(3, "eve?")],
)
AFTER = (
    {1: ("ada!", 0), 2: ("bob", 0)},
    {1: ("ada!", 0), 3: ("eve", 1)},
    {1: ("ada!", 0), 2: ("bob again", 2), 3: ("eve?", 2)},
)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path, {"users": tg.DeltaSink(f"{tmp_path}/lake/users", **BY_ID)})


BY_ID: dict[str, Any] = {"envelope": "upsert", "key": "id", "order": "_offset", "deleted": "gone"}


def test_each_live_epoch_is_a_version_and_can_be_read_as_it_was(shop: Shop) -> None:
    for epoch, rows in enumerate(THREE):
        assert shop.run(*rows) == epoch + 1
        assert shop.read() == AFTER[epoch]
    assert [shop.read(as_of=epoch) for epoch in range(3)] == list(AFTER)
    assert "gone" not in tg.read_arrow(shop.flow, "users").column_names
    assert tg.verify(shop.flow).problems == ()
    assert (shop.state().rows, shop.state().files) == (3, 1)
    assert tg.explain(shop.flow, 0).rows == {"users": 1}  # of the rows that there are, one was changed last then
    assert [version["version"] for version in DeltaTable(f"{shop.root}/lake/users").history()] == [2, 1, 0]


def test_rows_with_operations_are_applied(tmp_path: Path) -> None:
    shop = Shop(tmp_path, columns="id long, name string, _op string")
    shop.run(user(1, "ada", _op="insert"), user(2, "bob", _op="insert"), user(1, "ada", _op="before"))
    shop.run(user(1, "ada!", _op="update"), user(2, _op="delete"), user(9, _op="delete"))
    assert shop.read() == {1: ("ada!", 1)}
    assert "_op" not in tg.read_arrow(shop.flow, "users").column_names
    shop.run(user(1, _op="delete"))
    assert shop.read() == {}
    assert DeltaTable(f"{tmp_path}/lake/users").file_uris() == []
    shop.run(user(1, "again", _op="insert"))
    assert shop.read() == {1: ("again", 3)}
    assert [shop.read(as_of=epoch) for epoch in (1, 2)] == [{1: ("ada!", 1)}, {}]


def test_an_output_without_rows_yet_has_the_columns_of_its_table(tmp_path: Path) -> None:
    shop = Shop(tmp_path, columns="id long, name string, _op string")
    shop.steps = lambda users: users.filter("id > 5")
    shop.run(user(1, "ada", _op="insert"))
    assert "_op" not in tg.read_arrow(shop.flow, "users").column_names


@pytest.mark.parametrize("stamps", ["faithful", "collapse"])
def test_a_late_table_is_one_that_was_there_from_the_start(tmp_path: Path, stamps: str) -> None:
    early = tg.DeltaSink(f"{tmp_path}/lake/users", **BY_ID)
    shop = Shop(tmp_path, {"users": early})
    for rows in THREE[:2]:
        shop.run(*rows)
    late = tg.DeltaSink(f"{tmp_path}/lake/late", **BY_ID)
    shop.sinks, shop.how = {"users": early, "late": late}, {"late": {"timestamps": stamps}}
    shop.run(*THREE[2])
    assert shop.read() == AFTER[2]
    found = shop.read("late")
    assert {key: name for key, (name, _) in found.items()} == {key: name for key, (name, _) in AFTER[2].items()}
    if stamps == "faithful":
        assert found == AFTER[2]
    shop.run(user(1, "ada?"))
    assert shop.read("late")[1] == ("ada?", 3)
    assert not list(Path(late.path, "_staged").glob("*"))


def test_a_late_table_whose_past_has_one_epoch_knows_the_epochs_apart_without_an_order(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    early, late = shop.sink(), shop.sink("late")
    shop.sinks = {"users": early}
    for name in ("ada", "bob", "eve"):
        shop.run(user(1, name))
    shop.sinks, shop.how = {"users": early, "late": late}, {"late": {"timestamps": "collapse"}}
    shop.run(user(2, "zoe"))
    assert {key: name for key, (name, _) in shop.read("late").items()} == {1: "eve", 2: "zoe"}


def test_within_epochs_that_came_by_one_commit_no_epoch_can_be_told(shop: Shop) -> None:
    shop.run(*THREE[0])
    for rows in THREE[1:]:
        shop.run(*rows)
    late = tg.DeltaSink(f"{shop.root}/lake/late", **BY_ID)
    shop.sinks |= {"late": late}
    shop.run(user(7, "zoe"))
    assert shop.read("late", as_of=3) == shop.read(as_of=3)
    for epoch in (0, 1):
        with pytest.raises(EpochReplaced, match="TG-0439"):
            shop.read("late", as_of=epoch)


@pytest.mark.parametrize(
    ("options", "rows", "error", "epoch"),
    [
        ({}, [user(1, "a"), user(1, "b")], LastUndecided, 1),
        ({"order": "score"}, [user(1, "a", score=1.0), user(1, "b", score=1.0)], LastUndecided, 1),
        ({"order": "_offset"}, [user(None, "nobody")], KeyMissing, 1),
        ({"key": ["id", "name"]}, [user(1, None)], KeyMissing, 1),
    ],
)
def test_what_cannot_be_decided_stops_this_output_alone(
    tmp_path: Path, options: dict[str, Any], rows: list[dict[str, Any]], error: type[Exception], epoch: int
) -> None:
    shop = Shop(tmp_path)
    shop.sinks = {"users": shop.sink(**options), "all": tg.DeltaSink(f"{tmp_path}/lake/all")}
    shop.run(user(1, "ada", score=0.5))
    with pytest.raises(error) as caught:
        shop.run(*rows)
    assert caught.value.evidence["epoch"] == epoch  # type: ignore[attr-defined]
    assert len(tg.read_arrow(shop.flow, "all")) == 1 + len(rows)
    assert shop.read(as_of=0) == {1: ("ada", 0)}
    assert shop.state().state == "failed"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"key": "nobody"}, "there is no such column"),
        ({"key": "score"}, "values of double cannot be compared for certain"),
        ({"order": "nothing"}, "there is no such column"),
        ({"deleted": "name"}, "a column of booleans"),
        ({"key": "gone", "deleted": "gone"}, "it is not in the table"),
    ],
)
def test_columns_that_do_not_fit_are_refused_before_anything_is_staged(
    tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    shop = Shop(tmp_path)
    shop.sinks = {"users": shop.sink(**options), "all": tg.DeltaSink(f"{tmp_path}/lake/all")}
    with pytest.raises(KeyedColumnUnfit, match=said):
        shop.run(user(1, "ada"))
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize(
    "options",
    [
        {"key": None},
        {"key": []},
        {"key": ["id", "id"]},
        {"envelope": "merge"},
        {"envelope": "append"},
        {"envelope": "append", "key": None, "order": "n"},
        {"key": 7},
    ],
)
def test_a_sink_that_says_nonsense_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        tg.DeltaSink("lake", **{"envelope": "upsert", "key": "id", **options})


def test_a_sink_describes_itself(tmp_path: Path) -> None:
    assert tg.DeltaSink(str(tmp_path)).describe() == {"kind": "delta", "path": str(tmp_path)}
    found = tg.DeltaSink(str(tmp_path), envelope="upsert", key=["a", "b"], deleted="gone").describe()
    said = {"kind": "delta", "path": str(tmp_path), "envelope": "upsert", "key": ["a", "b"], "deleted": "gone"}
    assert json.loads(json.dumps(found)) == said


def test_what_only_appends_is_told_of_the_sinks_that_apply(tmp_path: Path) -> None:
    shop = Shop(tmp_path, {"users": tg.DeltaSink(f"{tmp_path}/lake/users")}, "id long, name string, _op string")
    with pytest.raises(OperationsNotTaken, match="DeltaSink, PostgresSink or KafkaSink"):
        shop.run(user(1, "ada", _op="insert"))


def test_it_is_no_past_for_another_output_and_its_epochs_are_not_repaired_one_by_one(shop: Shop) -> None:
    shop.run(*THREE[0])
    with pytest.raises(OnlyAppended, match="outputs rebuild"):
        tg.repair(shop.flow, "users", engine=tg.LocalEngine(threads=0))
    shop.sinks |= {"copy": tg.ParquetSink(f"{shop.root}/lake/copy")}
    shop.how = {"copy": {"start": tg.From("users")}}
    with pytest.raises(PastNotThere, match="keeps no row of each record"):
        _ = shop.flow


def test_another_key_or_another_envelope_is_refused_until_the_table_is_made_again(shop: Shop) -> None:
    shop.run(*THREE[0])
    others = {
        "all rows": tg.DeltaSink(f"{shop.root}/lake/users"),
        "one row for each value of name": shop.sink(key="name", order="_offset", deleted="gone"),
    }
    first = shop.sinks
    for wanted, sink in others.items():
        was, shop.sinks = shop.sinks, {"users": sink}
        with pytest.raises(KeptOtherwise, match=wanted):
            shop.run(user(5, "eve"))
        tg.rebuild(shop.flow, "users")
        shop.run()
        found = tg.read_arrow(shop.flow, "users").select(["id", "name"]).to_pylist()
        assert {row["name"] for row in found} >= {"ada", "ada!", "bob", "eve"}
        assert shop.state().state == "live"
        with pytest.raises(KeptOtherwise):
            Shop(shop.root, was).run(user(6, "zoe"))
        shop.run()
    shop.sinks = first
    tg.rebuild(shop.flow, "users")
    shop.run()
    assert {key: name for key, (name, _) in shop.read().items()} == {1: "ada!", 2: "bob", 5: "eve", 6: "zoe"}
    shop.run(user(1, "once more"))
    assert shop.read()[1][0] == "once more"


def test_a_table_that_is_made_again_is_as_of_no_epoch_what_it_was_before(shop: Shop) -> None:
    for rows in THREE:
        shop.run(*rows)
    tg.rebuild(shop.flow, "users")
    shop.run()
    assert shop.read() == AFTER[2]
    for epoch in (0, 1):
        with pytest.raises(EpochReplaced):
            shop.read(as_of=epoch)
    shop.run(user(9, "zoe"))
    assert shop.read(as_of=2) == AFTER[2]
    assert tg.verify(shop.flow).problems == ()


def test_others_may_pack_it_delete_rows_of_it_and_clear_it_up(shop: Shop) -> None:
    path = f"{shop.root}/lake/users"
    shop.run(*THREE[0])
    DeltaTable(path).delete("id = 1")
    shop.run(*THREE[1])
    assert shop.read() == {3: ("eve", 1)}
    DeltaTable(path).optimize.compact()
    DeltaTable(path).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    shop.run(user(1, "back"))
    assert shop.read() == {1: ("back", 2), 3: ("eve", 1)}
    rows = pa.table({"id": [5], "name": ["not ours"], "score": [1.0], "_epoch": [0]})
    write_deltalake(path, rows, mode="append", schema_mode="merge")
    with pytest.raises(TableChangedByOthers):
        shop.run(user(5, "ours"))


def test_leaves_that_others_pack_while_they_are_merged_are_merged_again(shop: Shop) -> None:
    shop.run(*THREE[0])
    path, merged = f"{shop.root}/lake/users", list[int]()

    class Engine(tg.LocalEngine):
        def work(self, tasks: Any) -> Any:
            merged.append(len(tasks))
            found = super().work(tasks)
            if len(merged) == 1:
                DeltaTable(path).optimize.z_order(["name"])
            return found

    shop.run(*THREE[1], engine=Engine(threads=0))
    assert shop.read() == AFTER[1]
    assert len(merged) == 2
    named = {Path(uri).name for v in range(3) for uri in DeltaTable(path, version=v).file_uris()}
    assert {file.name for file in Path(path).glob("part-*")} == named  # what was merged in vain is gone


def test_a_file_that_is_gone_stops_the_output_and_says_which(shop: Shop) -> None:
    shop.run(*THREE[0])
    [file] = DeltaTable(f"{shop.root}/lake/users").file_uris()
    Path(file.removeprefix("file://")).unlink()
    with pytest.raises(LeafUnreadable, match=Path(file).name):
        shop.run(*THREE[1])


def test_a_row_that_others_mark_deleted_is_read_by_nobody_and_stays_deleted(shop: Shop) -> None:
    shop.run(*THREE[0])
    path = f"{shop.root}/lake/users"
    [file] = (StagedFile(row["path"], 2, row["size_bytes"], 0, 0) for row in actions(path))
    alter(path, {"delta.enableDeletionVectors": "true"}, ["deletionVectors"])
    delete_first_row(path, file)
    left = {one: row for one, row in AFTER[0].items() if one != 1}
    assert shop.read() == left
    [row] = trace(shop.flow, "users", {"name": "bob"}, limit=5).rows
    assert row.row["id"] == 2
    assert trace(shop.flow, "users", {"id": "1"}, limit=5).rows == ()
    shop.run(user(7, "eve"))
    assert shop.read() == {**left, 7: ("eve", 1)}


def test_a_table_with_deletion_vectors_is_read_as_of_each_epoch_and_made_again(shop: Shop) -> None:
    shop.sinks = {"users": shop.sink(order="_offset", deleted="gone", deletion_vectors=True)}
    with mock.patch.object(bykey, "SIZES", Sizes(few_rows=0, most_dead=1.0)):
        for rows in THREE:
            shop.run(*rows)
        assert [shop.read(as_of=epoch) for epoch in range(len(THREE))] == list(AFTER)
        tg.replace(shop.flow, "users")
        shop.run()
        assert shop.read() == AFTER[-1]


def test_a_merge_that_fails_for_want_of_room_is_made_when_there_is_some(shop: Shop) -> None:
    shop.run(*THREE[0])
    tries = list[int]()

    class Engine(tg.LocalEngine):
        def work(self, tasks: Any) -> Any:
            tries.append(len(tasks))
            if len(tries) < 3:
                raise OSError(28, "No space left on device")
            return super().work(tasks)

    shop.run(*THREE[1], engine=Engine(threads=0))
    assert (shop.read(), len(tries)) == (AFTER[1], 3)


def actions(path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pa.table(DeltaTable(path).get_add_actions(flatten=True)).to_pylist()
    return found
