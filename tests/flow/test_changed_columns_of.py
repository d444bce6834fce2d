"""Columns that change, of other sources, sinks and engines: topics, servers, memory, functions, Spark, shares."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.postgres import Server, new_database
from tests.sinks.postgres.conftest import seen
from tests.sources.kafka.writing import write

import tidegauge as tg
from tidegauge.errors.columns import NotEvolving, SourceColumnsRefused
from tidegauge.errors.following import OwnerDiffers
from tidegauge.testing import Endpoint


def ddl(columns: Sequence[str]) -> str:
    return ", ".join(["n long", *(f"{name} string" for name in columns)])


def line(n: int) -> str:
    return json.dumps({"n": n, "a": f"a{n}", "b": f"b{n}"})


def folder_of(root: Path, *numbers: int) -> str:
    """A folder of lines; these numbers come now."""
    (root / "in").mkdir(parents=True, exist_ok=True)
    with (root / "in" / "1.jsonl").open("a") as file:
        file.writelines(line(n) + "\n" for n in numbers)
    return str(root / "in" / "*")


def flow_of(root: Path, source: Any, sinks: dict[str, Any], how: Any = "add", step: Any = None) -> tg.Dataflow:
    flow = tg.Dataflow("shop", store=f"sqlite:///{root}/flow.db", tick=0.02)
    orders = flow.source("orders", source)
    for name, sink in sinks.items():
        flow.sink(name, orders if step is None else step(orders), sink, schema=how)
    return flow


def run(flow: tg.Dataflow) -> None:
    flow.run("caught-up", engine=tg.LocalEngine(threads=0))


def found(flow: tg.Dataflow, output: str = "orders") -> list[tuple[Any, ...]]:
    rows = tg.read_arrow(flow, output).to_pylist()
    return sorted(
        tuple(row[name] for name in sorted(row, key=lambda name: (name != "n", name)) if name != "_epoch")
        for row in rows
    )


@pytest.mark.parametrize("key", [False, True], ids=["values alone", "keys beside them"])
@pytest.mark.parametrize("metadata", [False, True], ids=["bare", "with metadata"])
def test_messages_are_read_by_the_columns_that_were_declared_when_they_were_bound(
    tmp_path: Path, kafka_broker: Endpoint, make_topic: Callable[..., str], key: bool, metadata: bool
) -> None:
    topic = make_topic()

    def flow(*columns: str, late: bool = False) -> tg.Dataflow:
        keys: dict[str, Any] = {"key": tg.Text()} if key else {}
        source = tg.KafkaSource(
            kafka_broker.servers, topic=topic, format=tg.Json(ddl(columns)), metadata=metadata, **keys
        )
        sinks: dict[str, Any] = {"orders": tg.DeltaSink(f"{tmp_path}/orders")}
        if late:
            sinks |= {"late": tg.ParquetSink(f"{tmp_path}/late"), "all": tg.ParquetSink(f"{tmp_path}/all")}
        return flow_of(tmp_path, source, sinks, step=lambda rows: rows.select("n", *columns))

    for n, columns in enumerate([(), (), ("a",), ("b", "a")]):
        write(kafka_broker, topic, [line(n).encode()])
        run(flow(*columns))
    last = flow("b", "a", late=True)
    run(last)
    assert found(last) == found(last, "late") == [(0, None, None), (1, None, None), (2, "a2", None), (3, "a3", "b3")]
    keys: dict[str, Any] = {"key": tg.Text()} if key else {}
    other = tg.KafkaSource(
        kafka_broker.servers, topic=topic, format=tg.Json(ddl(["b", "a"])), metadata=not metadata, **keys
    )
    with pytest.raises(SourceColumnsRefused, match=r"metadata= was changed"):
        run(flow_of(tmp_path, other, {"orders": tg.DeltaSink(f"{tmp_path}/orders")}))


def test_topics_and_functions_take_what_comes_where_it_is_allowed(
    tmp_path: Path, kafka_broker: Endpoint, topic_name: str
) -> None:
    given: list[pa.Table] = []

    def flow(*columns: str) -> tg.Dataflow:
        source = tg.FileSource(f"{tmp_path}/in/*", format=tg.Json(ddl(columns)))
        sinks = {
            "topic": tg.KafkaSink(
                kafka_broker.servers, topic=topic_name, partitions=1, staging=f"{tmp_path}/staging"
            ),
            "function": tg.ForeachEpochSink(
                lambda rows, _attempt: given.append(rows.read_all()), f"{tmp_path}/progress"
            ),
        }
        return flow_of(tmp_path, source, sinks)

    folder_of(tmp_path, 0)
    run(flow())
    folder_of(tmp_path, 1)
    run(flow("a"))
    assert [sorted(table.column_names) for table in given if table.num_rows] == [
        ["_epoch", "n"],
        ["_epoch", "a", "n"],
    ]


def test_tables_on_a_server_and_in_memory_take_on_columns(tmp_path: Path, postgres: Server) -> None:
    address, memory = postgres.address(new_database(postgres)), tg.MemorySink()

    def flow(*columns: str, how: str = "add", kind: str = "int") -> tg.Dataflow:
        source = tg.FileSource(f"{tmp_path}/in/*", format=tg.Json(ddl(columns).replace("long", kind)))
        server = tg.PostgresSink(address, "orders", staging=f"{tmp_path}/staging")
        return flow_of(tmp_path, source, {"server": server, "memory": memory}, how)

    folder_of(tmp_path, 0)
    run(flow("b"))
    folder_of(tmp_path, 1)
    run(flow("b", "a"))
    folder_of(tmp_path, 2)
    run(flow("a", how="evolve", kind="long"))
    expected = [(0, None, "b0"), (1, "a1", "b1"), (2, "a2", None)]
    rows = seen(address, "orders", "n, a, b, pg_typeof(n)::text")
    assert sorted((row["n"], row["a"], row["b"]) for row in rows) == expected
    assert {row["pg_typeof"] for row in rows} == {"bigint"}
    held = memory.table()
    assert held.schema.field("n").type == pa.int64()
    assert sorted((row["n"], row["a"], row["b"]) for row in held.to_pylist()) == expected


def test_a_source_that_cannot_read_by_earlier_columns_says_so(tmp_path: Path) -> None:
    sinks = {"orders": tg.DeltaSink(f"{tmp_path}/lake")}
    run(flow_of(tmp_path, tg.GeneratorSource(3, columns="id long"), sinks))
    with pytest.raises(SourceColumnsRefused, match="GeneratorSource cannot read records by the columns of before"):
        run(flow_of(tmp_path, tg.GeneratorSource(3, columns="id long, n long"), sinks))


def test_a_flow_that_shares_a_source_gets_the_columns_of_its_owner(tmp_path: Path) -> None:
    def owner(*columns: str) -> tg.Dataflow:
        source = tg.FileSource(f"{tmp_path}/in/*", format=tg.Json(ddl(columns)))
        return flow_of(tmp_path, source, {"orders": tg.DeltaSink(f"{tmp_path}/orders")})

    def follower(*columns: str) -> tg.Dataflow:
        flow = tg.Dataflow("other", store=f"sqlite:///{tmp_path}/flow.db", tick=0.02)
        shared = flow.source("orders", tg.shared(owner(*columns), "orders"))
        flow.sink("mine", shared, tg.DeltaSink(f"{tmp_path}/mine"), schema="add")
        return flow

    folder_of(tmp_path, 0)
    run(owner())
    run(follower())
    folder_of(tmp_path, 1)
    with pytest.raises(OwnerDiffers):
        run(follower("a"))
    run(owner("a"))
    with pytest.raises(OwnerDiffers):
        run(follower())
    run(follower("a"))
    assert found(follower("a"), "mine") == found(owner("a")) == [(0, None), (1, "a1")]


def test_the_past_from_another_table_has_null_where_that_had_no_column(tmp_path: Path) -> None:
    def flow(*columns: str, late: bool = False) -> tg.Dataflow:
        made = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/flow.db", tick=0.02)
        source = tg.FileSource(f"{tmp_path}/in/*", format=tg.Json(ddl(columns)), on_data_loss="gap")
        orders = made.source("orders", source)
        made.sink("orders", orders, tg.ParquetSink(f"{tmp_path}/orders"), schema="add")
        if late:
            made.sink("late", orders, tg.DeltaSink(f"{tmp_path}/late"), start=tg.From("orders"), schema="add")
        return made

    folder_of(tmp_path, 0)
    run(flow())
    last = flow("a", late=True)  # the table lacks the column as yet
    run(last)
    folder_of(tmp_path, 1)
    run(last)
    assert found(last, "late") == found(last) == [(0, None), (1, "a1")]


def test_a_table_of_a_sink_without_the_seam_says_so(tmp_path: Path) -> None:
    class Plain:
        """A sink that only knows what every sink does."""

        def __init__(self) -> None:
            self.inner = tg.DeltaSink(f"{tmp_path}/lake")

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

        def open(self, output: Any) -> Any:
            return Bare(self.inner.open(output))

    class Bare:
        """A table that takes on nothing."""

        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def __getattr__(self, name: str) -> Any:
            if name in ("evolve", "lacking"):
                raise AttributeError(name)
            return getattr(self.inner, name)

    folder_of(tmp_path, 0)
    source = tg.FileSource(f"{tmp_path}/in/*", format=tg.Json("n long"))
    run(flow_of(tmp_path, source, {"orders": Plain()}))
    with pytest.raises(NotEvolving, match="Plain cannot give its table columns"):
        run(flow_of(tmp_path, source, {"orders": Plain()}))


@pytest.mark.spark
def test_on_spark_a_column_of_a_transform_and_a_declared_one_are_taken_on_too(tmp_path: Path) -> None:
    def flow(*columns: str, late: bool = False, twice: bool = False) -> tg.Dataflow:
        made = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/flow.db", tick=0.02)
        orders = made.source("orders", tg.FileSource(f"{tmp_path}/in/*", format=tg.Json(ddl(columns))))
        step = orders.select("*", "n * 2 AS twice") if twice else orders
        made.sink("orders", step, tg.DeltaSink(f"{tmp_path}/orders"), schema="add")
        if late:
            made.sink("late", orders.select("*", "upper(a) AS A2"), tg.DeltaSink(f"{tmp_path}/late"), schema="add")
        return made

    engine = tg.SparkEngine(master="local[1]")
    try:
        folder_of(tmp_path, 0)
        flow().run("caught-up", engine=engine)
        folder_of(tmp_path, 1)
        flow("a", twice=True).run("caught-up", engine=engine)
        folder_of(tmp_path, 2)
        last = flow("a", "b", twice=True, late=True)
        last.run("caught-up", engine=engine)
    finally:
        engine.close()
    assert found(last) == [(0, None, None, None), (1, "a1", None, 2), (2, "a2", "b2", 4)]
    assert found(last, "late") == [(0, None, None, None), (1, "A1", "a1", None), (2, "A2", "a2", "b2")]


@pytest.mark.long
@pytest.mark.spark
def test_on_spark_columns_that_nobody_declared_are_taken_on_while_it_runs(tmp_path: Path) -> None:
    flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/flow.db", tick=0.02)
    orders = flow.source("orders", tg.FileSource(f"{tmp_path}/in/*", format=tg.Json()))
    flow.sink("orders", orders, tg.DeltaSink(f"{tmp_path}/orders"), schema="add")
    flow.sink("more", orders.select("*", "n + 1 AS next"), tg.ParquetSink(f"{tmp_path}/more"), schema="add")
    engine = tg.SparkEngine(master="local[1]")
    (tmp_path / "in").mkdir()
    try:
        more: list[dict[str, Any]] = [{}, {"user": "ada"}, {"user": "bob", "at": {"x": 1}}, {"at": {"y": 2}}]
        for number, fields in enumerate(more):
            (tmp_path / "in" / f"{number}.jsonl").write_text(json.dumps({"n": number, **fields}) + "\n")
            flow.run("caught-up", engine=engine)
    finally:
        engine.close()
    given = [(None, None), ("ada", None), ("bob", {"x": 1, "y": None}), (None, {"x": None, "y": 2})]
    for output in ("orders", "more"):
        rows = tg.read_arrow(flow, output).sort_by("n").to_pylist()
        assert [(row["user"], row["at"]) for row in rows] == given
    assert [row["next"] for row in rows] == [1, 2, 3, 4]
