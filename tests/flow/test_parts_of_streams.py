"""Streams that are unnested, deduplicated and parted, in whole flows, live and late; and mistakes in saying so."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.flow.badinput import begin, finish, write
from tests.flow.by_hand import World

import tidegauge as tg
from tidegauge.engine import parts
from tidegauge.errors.flow import InvalidArgument, UnknownColumn
from tidegauge.errors.outputs import PastNotThere
from tidegauge.errors.steps import NoOrderOfRows, NotAPart, OperationsInStep
from tidegauge.job import portion
from tidegauge.job.plan import OutputPlan

LINE = "id long, country string, items array<string>"


def orders_of(world: World, flow: tg.Dataflow, line: str = LINE) -> tg.RowStream:
    source = tg.FileSource(str(world.root / "orders" / "*"), format=tg.Json(line), metadata=True)
    return flow.source("orders", source)


def parquet(world: World, name: str) -> tg.ParquetSink:
    return tg.ParquetSink(str(world.root / "lake" / name))


def flow_of(*others: str) -> Callable[[World], tg.Dataflow]:
    """Orders as they are, and these outputs besides."""

    def make(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=world.store)
        orders = orders_of(world, flow)
        halves, by_country = orders.partition(2, "id"), orders.split_by("country", ["DE", "FR"])
        streams = {
            "all": orders,
            "one": halves[0],
            "other": halves[1],
            "DE": by_country["DE"],
            "FR": by_country["FR"],
            "rest": by_country.rest,
            "firsts": orders.dedupe("country"),
            "items": orders.unnest("items").dedupe("items"),
        }
        for name in ("all", *others):
            flow.sink(name, streams[name.removeprefix("late_")], parquet(world, name))
        return flow

    return make


LIVE = ("one", "other", "DE", "FR", "rest", "firsts", "items")


def add(world: World, file: str, *rows: tuple[int, str | None, list[str] | None]) -> None:
    texts = [json.dumps({"id": one, "country": country, "items": items}) + "\n" for one, country, items in rows]
    write(world.root / "orders" / file, "".join(texts))


def rows_of(world: World, make: Callable[[World], tg.Dataflow], name: str) -> list[dict[str, Any]]:
    table = tg.read_arrow(make(world), name)
    return sorted(table.to_pylist(), key=lambda row: (row["_epoch"], row["_partition"], row["_offset"]))


def grown(world: World, make: Callable[[World], tg.Dataflow]) -> None:
    """A life of two epochs."""
    run = begin(world, make)
    add(world, "b", (1, "DE", ["x", "y"]), (2, "FR", []), (3, "DE", None))
    add(world, "a", (4, "FR", ["x"]), (5, None, ["z", "z"]), (6, "SE", ["y"]))
    run.catch_up()
    add(world, "a", (7, "DE", ["x"]), (8, "DE", ["q"]), (9, None, ["x"]))
    run.catch_up()
    run.abandon()


def test_late_outputs_have_the_rows_of_live_ones_also_where_others_stage_their_past_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, flow_of(*LIVE))
    grown(world, world.make)
    monkeypatch.setitem(portion.JOB_LIMITS, "bytes", portion.LATE_PART * 40)  # a record
    both = flow_of(*LIVE, *(f"late_{name}" for name in LIVE))
    finish(world, both)
    for name in LIVE:
        assert rows_of(world, both, f"late_{name}") == rows_of(world, both, name), name


def test_every_row_is_in_one_part_and_the_first_of_each_key_is_the_first_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "TINY", 1)  # a task for each file, where that may be
    world = World(tmp_path, flow_of(*LIVE))
    grown(world, world.make)
    rows = {name: rows_of(world, world.make, name) for name in ("all", *LIVE)}
    order = [(row["_epoch"], row["_partition"], row["_offset"]) for row in rows["all"]]
    assert order == sorted(order)
    for names in (("one", "other"), ("DE", "FR", "rest")):
        together = [row for name in names for row in rows[name]]
        assert sorted(map(repr, together)) == sorted(map(repr, rows["all"]))
    assert {row["country"] for row in rows["rest"]} == {None, "SE"}
    firsts: dict[Any, Any] = {}
    items: dict[Any, Any] = {}
    for row in rows["all"]:
        firsts.setdefault((row["_epoch"], row["country"]), row)
        for item in row["items"] or []:
            items.setdefault((row["_epoch"], item), row | {"items": item})
    assert rows["firsts"] == list(firsts.values())
    assert sorted(map(repr, rows["items"])) == sorted(map(repr, items.values()))


def stream() -> tg.RowStream:
    flow = tg.Dataflow("shop", store="sqlite:///shop.db")
    return flow.source("orders", tg.GeneratorSource(10, columns="id long, country string"))


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda s: s.unnest(""), "column"),
        (lambda s: s.unnest(["a"]), "column"),
        (lambda s: s.dedupe(), "key"),
        (lambda s: s.dedupe("id", "id"), "key"),
        (lambda s: s.dedupe(["id"]), "key"),
        (lambda s: s.dedupe("_op"), "key"),
        (lambda s: s.partition(0, "id"), "parts cannot be 0"),
        (lambda s: s.partition(True, "id"), "parts cannot be True"),
        (lambda s: s.partition("id", 2), "parts cannot be 'id'"),
        (lambda s: s.partition(2), "key"),
        (lambda s: s.partition(20_000, "id"), "1 to 10000"),
        (lambda s: s.split_by("country", []), "values"),
        (lambda s: s.split_by("country", "DE"), "values cannot be 'DE'"),
        (lambda s: s.split_by("country", ["DE", "DE"]), "each once"),
        (lambda s: s.split_by("country", ["DE", None]), "nulls are in `rest`"),
        (lambda s: s.split_by("x", [float("nan")]), "nan"),
        (lambda s: s.split_by("x", [["DE"]]), "each once"),
        (lambda s: s.split_by("_op", ["insert"]), "column"),
    ],
)
def test_arguments_without_meaning_are_refused_at_once(made: Callable[[tg.RowStream], Any], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        made(stream())


def test_parts_are_taken_by_value_and_a_misspelt_one_is_an_error_that_lists_them() -> None:
    found = stream().split_by("country", ["DE", "FR"])
    assert ([*found], len(found), found.column) == (["DE", "FR"], 2, "country")
    assert found["DE"].steps != found["FR"].steps != found.rest.steps
    with pytest.raises(NotAPart, match=r"'DK' of 'country'\. It has: 'DE', 'FR'"):
        found["DK"]
    a, b, c = stream().partition(3, "id", "country")
    assert len({a.steps, b.steps, c.steps}) == 3
    assert repr(a) == "RowStream(orders | partition)"


@pytest.mark.parametrize(
    ("columns", "steps", "error"),
    [
        ("id long, country string", lambda s: s.dedupe("idd"), UnknownColumn),
        ("id long, country string", lambda s: s.split_by("land", ["DE"]).rest, UnknownColumn),
        ("id long, items array<string>, _op string", lambda s: s.unnest("items"), OperationsInStep),
        ("id long, _op string", lambda s: s.dedupe("id"), OperationsInStep),
    ],
)
def test_a_flow_refuses_steps_that_cannot_be_before_it_writes_anything(
    tmp_path: Path, columns: str, steps: Callable[[tg.RowStream], tg.RowStream], error: type[Exception]
) -> None:
    world = World(tmp_path, flow_of())
    add(world, "a", (1, "DE", []))
    flow = tg.Dataflow("shop", store=world.store)
    rows = steps(orders_of(world, flow, columns))
    sink = tg.DeltaSink(str(tmp_path / "lake"), envelope="upsert", key="id", order="id") if "_op" in columns else None
    flow.sink("x", rows, sink or parquet(world, "x"))
    with pytest.raises(error):
        flow.run(until="caught-up", engine="local")
    assert not (tmp_path / "lake" / "x").exists()


def test_what_has_no_order_of_rows_is_not_deduplicated(tmp_path: Path) -> None:
    flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/shop.db")
    pushed = flow.source("pushed", tg.SocketSource("127.0.0.1", 9, columns={"orders": "id long"}))
    with pytest.raises(NoOrderOfRows, match="pushes its records"):
        flow.sink("x", pushed.stream("orders").dedupe("id"), tg.ParquetSink(str(tmp_path / "x")))
    rows = flow.source("rows", tg.GeneratorSource(10, columns="id long"))
    flow.sink("all", rows, tg.ParquetSink(str(tmp_path / "all")))
    with pytest.raises(PastNotThere, match="no order of rows"):
        flow.sink("y", rows.dedupe("id"), tg.ParquetSink(str(tmp_path / "y")), start=tg.From("all"))
    flow.sink("z", rows.dedupe("id"), tg.ParquetSink(str(tmp_path / "z")))
    flow.sink("odd", rows.dedupe("id").filter("id > 1"), tg.ParquetSink(str(tmp_path / "odd")), start=tg.From("z"))
    assert isinstance(flow.outputs["odd"], OutputPlan)
