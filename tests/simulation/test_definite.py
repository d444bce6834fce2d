"""A function that depends on more than its rows is found before any world is run, each with an error of its own."""

from __future__ import annotations

import os
import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pytest
from tests.simulation import reference

import tidegauge as tg
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.engine import SchemaUnknown
from tidegauge.errors.simulation import (
    StepDrawsChance,
    StepKeepsState,
    StepRaises,
    StepSeesCuts,
    StepSeesOrder,
    StepSeesProcess,
)
from tidegauge.testing.simulation import simulate
from tidegauge.testing.simulation.definite import definite
from tidegauge.testing.simulation.elsewhere import Elsewhere
from tidegauge.testing.simulation.ground import Ground

pc: Any = pyarrow.compute
Function = Callable[[pa.RecordBatch], pa.RecordBatch]


def shop(*steps: Function, columns: str = "id long, user string, amount double") -> Callable[[], tg.Dataflow]:
    def make() -> tg.Dataflow:
        flow = tg.Dataflow("shop", store="sqlite:///shop.db")
        stream = flow.source("orders", tg.GeneratorSource(columns=columns))
        for step in steps:
            stream = stream.map_batches(step)
        flow.sink("lake", stream, tg.ParquetSink("lake"))
        return flow

    return make


def found(
    kind: type[TidegaugeError], make: Callable[[], tg.Dataflow], *, elsewhere: Elsewhere | None = None
) -> dict[str, Any]:
    with pytest.raises(kind) as raised:
        definite(Ground.of(make), elsewhere=elsewhere)
    assert raised.value.evidence["output"] == "lake"
    return dict(raised.value.evidence)


def with_column(batch: pa.RecordBatch, values: list[Any], of: Any = None) -> pa.RecordBatch:
    return batch.append_column("more", pa.array(values, of or pa.int64()))


def with_union(step: Function) -> Callable[[], tg.Dataflow]:
    def make() -> tg.Dataflow:
        flow = tg.Dataflow("shop", store="sqlite:///shop.db")
        streams = [flow.source(name, tg.GeneratorSource(columns=f"id long, {name} int")) for name in ("a", "b")]
        both = flow.source("both", tg.union(*streams))
        flow.sink("lake", both.map_batches(step), tg.ParquetSink("lake"))
        return flow

    return make


def test_a_function_of_a_union_is_tried_on_rows_of_all_its_inputs() -> None:
    definite(Ground.of(with_union(lambda batch: batch)))
    evidence = found(
        StepDrawsChance, with_union(lambda batch: with_column(batch, [uuid.uuid4().int >> 80] * batch.num_rows))
    )
    assert "_source" in str(evidence)


def with_dead_letters(step: Function) -> Callable[[], tg.Dataflow]:
    def make() -> tg.Dataflow:
        flow = tg.Dataflow("shop", store="sqlite:///shop.db")
        source = tg.KafkaSource("nowhere:9092", topic="orders", format=tg.Json("id long"))
        flow.sink("lake", flow.source("orders", source).errors.map_batches(step), tg.ParquetSink("lake"))
        return flow

    return make


def test_a_function_of_bad_records_is_tried_too() -> None:
    def ranked(batch: pa.RecordBatch) -> pa.RecordBatch:
        return with_column(batch, list(range(batch.num_rows)))

    evidence = found(StepSeesOrder, with_dead_letters(ranked))
    assert "source: 'orders'" in evidence["rows"]


def test_a_function_of_bad_records_may_count_on_what_each_of_them_has() -> None:
    def told(batch: pa.RecordBatch) -> pa.RecordBatch:
        lengths = [len(raw) for raw in batch["raw"].to_pylist()]
        codes = [code.removeprefix("TG-") for code in batch["code"].to_pylist()]
        return with_column(batch, [length + int(code) for length, code in zip(lengths, codes, strict=True)])

    definite(Ground.of(with_dead_letters(told)))


# What comes before a step that keeps the first row of each key.


def sorted_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.take(pc.sort_indices(batch, sort_keys=[("amount", "descending")]))


def with_firsts(step: Function, *, before: bool) -> Callable[[], tg.Dataflow]:
    def make() -> tg.Dataflow:
        flow = tg.Dataflow("shop", store="sqlite:///shop.db")
        stream = flow.source("orders", tg.GeneratorSource(columns="id long, user string, amount double"))
        stream = stream.map_batches(step).dedupe("user") if before else stream.dedupe("user").map_batches(step)
        flow.sink("lake", stream, tg.ParquetSink("lake"))
        return flow

    return make


def test_what_is_first_does_not_depend_on_how_rows_are_cut() -> None:
    evidence = found(StepSeesCuts, with_firsts(sorted_rows, before=True))
    assert evidence["first"].startswith("1: ")
    assert evidence["second"].startswith("1: ")
    definite(Ground.of(with_firsts(sorted_rows, before=False)))
    definite(Ground.of(with_firsts(large, before=True)))


def test_what_is_first_is_no_chance() -> None:
    def shuffled(batch: pa.RecordBatch) -> pa.RecordBatch:
        places = list(range(batch.num_rows))
        random.shuffle(places)
        return batch.take(pa.array(places, pa.int64()))

    found(StepDrawsChance, with_firsts(shuffled, before=True))


# What is fine.


def test_the_reference_flow_is_definite() -> None:
    definite(Ground.of(reference.make_flow))


def large(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.filter(pc.greater(batch["amount"], 1))


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.concat_batches([batch, batch])


def exploded(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch.filter(pc.is_valid(batch["id"])), batch])


def shuffled(batch: pa.RecordBatch) -> pa.RecordBatch:
    order = list(range(batch.num_rows))
    random.shuffle(order)
    return batch.take(pa.array(order, pa.int64()))


def rounded(batch: pa.RecordBatch) -> pa.RecordBatch:
    started = time.perf_counter()
    made = with_column(batch, [None if x is None else round(x) for x in batch["amount"].to_pylist()])
    assert time.perf_counter() - started < 60
    return made


def nothing(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.slice(0, 0)


@pytest.mark.parametrize(
    "steps", [(large,), (doubled, large), (exploded,), (shuffled,), (rounded, doubled), (nothing,)]
)
def test_a_function_of_its_rows_may_return_them_in_any_order_fewer_or_more(steps: tuple[Any, ...]) -> None:
    definite(Ground.of(shop(*steps)))


def test_sql_steps_and_the_columns_of_messages_are_no_matter() -> None:
    def make() -> tg.Dataflow:
        flow = tg.Dataflow("shop", store="sqlite:///shop.db")
        source = tg.KafkaSource(
            "nowhere:9092", topic="orders", format=tg.Json("id long not null, amount double"), metadata=True
        )
        stream = flow.source("orders", source).filter("amount > 1").map_batches(large).select("id", "_offset")
        flow.sink("lake", stream, tg.ParquetSink("lake"))
        return flow

    definite(Ground.of(make))


# What asks somebody else.


def stamped(batch: pa.RecordBatch) -> pa.RecordBatch:
    return with_column(batch, [datetime.now(UTC)] * batch.num_rows, pa.timestamp("us", "UTC"))


def sampled(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.filter(pa.array([random.random() < 0.5 for _ in range(batch.num_rows)], pa.bool_()))


def named(batch: pa.RecordBatch) -> pa.RecordBatch:
    return with_column(batch, [str(uuid.uuid4()) for _ in range(batch.num_rows)], pa.string())


DICE = np.random.default_rng()
COINS = random.Random(7)


def thrown(batch: pa.RecordBatch) -> pa.RecordBatch:
    return with_column(batch, list(DICE.random(batch.num_rows)), pa.float64())


def tossed(batch: pa.RecordBatch) -> pa.RecordBatch:
    return with_column(batch, [COINS.randrange(100) for _ in range(batch.num_rows)])


@pytest.mark.parametrize("step", [stamped, sampled, named, thrown, tossed])
def test_a_clock_and_a_random_number_are_found_with_one_row(step: Function) -> None:
    evidence = found(StepDrawsChance, shop(step, columns="id long not null"))
    assert evidence["step"] == step.__name__
    assert evidence["rows"].count("{") <= 2
    assert evidence["first"] != evidence["second"]


# What remembers.

TOTAL = [0]
SEEN: set[Any] = set()


def totalled(batch: pa.RecordBatch) -> pa.RecordBatch:
    TOTAL[0] += batch.num_rows
    return with_column(batch, [TOTAL[0]] * batch.num_rows)


def remember(user: str) -> bool:
    new = user not in SEEN
    SEEN.add(user)
    return new


def first_of_each(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.filter(pa.array([remember(user) for user in batch["user"].to_pylist()], pa.bool_()))


class Numbering:
    def __init__(self) -> None:
        self.numbers: Iterator[int] = count()

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return with_column(batch, [next(self.numbers) for _ in range(batch.num_rows)])


REMEMBER = [(totalled, "TOTAL"), (first_of_each, "SEEN"), (Numbering(), "numbers")]


@pytest.mark.parametrize(("step", "kept"), REMEMBER, ids=["total", "seen", "object"])
def test_what_a_function_keeps_between_calls_is_named(step: Any, kept: str) -> None:
    assert found(StepKeepsState, shop(step))["kept"] == [kept]


def test_a_running_total_is_shown_with_one_row() -> None:
    evidence = found(StepKeepsState, shop(totalled, columns="id long not null"))
    assert evidence["rows"].count("{") == 1


def test_a_function_that_its_factory_makes_anew_is_tried_anew() -> None:
    def make() -> tg.Dataflow:
        baseline: list[Any] = []

        def since_the_first(batch: pa.RecordBatch) -> pa.RecordBatch:
            if batch.num_rows and not baseline:
                baseline.append(batch["id"][0].as_py())
            return with_column(batch, [f"{n} {baseline[0]}" for n in batch["id"].to_pylist()], pa.string())

        return shop(since_the_first, columns="id long not null")()

    evidence = found(StepKeepsState, make)
    assert evidence["kept"] == ["baseline"]
    assert evidence["rows"].count("{") == 2, "one before, and one that shows it"


# What sees how rows come.


def numbered(batch: pa.RecordBatch) -> pa.RecordBatch:
    seen: Counter[Any] = Counter()
    numbers = []
    for user in batch["user"].to_pylist():
        seen[user] += 1
        numbers.append(seen[user])
    return with_column(batch, numbers)


def without_duplicates(batch: pa.RecordBatch) -> pa.RecordBatch:
    first: dict[Any, int] = {}
    for row, user in enumerate(batch["user"].to_pylist()):
        first.setdefault(user, row)
    return batch.take(pa.array(list(first.values()), pa.int64()))


@pytest.mark.parametrize("step", [numbered, without_duplicates])
def test_the_order_of_partitions_is_found_with_two_rows(step: Function) -> None:
    evidence = found(StepSeesOrder, shop(step))
    assert evidence["rows"].count("{") == 2
    assert ", then " in evidence["rows"]


def total(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"rows": pa.array([batch.num_rows], pa.int64())})


def distinct(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(sorted(set(batch["id"].to_pylist())), pa.int64())})


def largest(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.sort_by([("id", "descending")]).slice(0, 10)


@pytest.mark.parametrize(("step", "rows"), [(total, 2), (distinct, 2), (largest, 11)])
def test_aggregates_over_a_batch_are_found_with_as_few_rows_as_show_it(step: Function, rows: int) -> None:
    evidence = found(StepSeesCuts, shop(step, columns="id long not null"))
    shown, _, more = evidence["rows"].partition(" and ")
    assert shown.count("{") + int(more.removesuffix(" more") or 0) == rows


def test_the_second_of_two_functions_is_named() -> None:
    assert found(StepSeesCuts, shop(doubled, total))["step"] == "total"


# What another process has differently.


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Elsewhere]:
    with Elsewhere() as process:
        yield process


def letters(batch: pa.RecordBatch) -> pa.RecordBatch:
    sets = [{user, user[::-1], "a", "b", "c", "d"} for user in batch["user"].to_pylist()]
    return with_column(batch, ["".join(one) for one in sets], pa.string())


def bucket(batch: pa.RecordBatch) -> pa.RecordBatch:
    return with_column(batch, [hash(user) for user in batch["user"].to_pylist()])


def worker(batch: pa.RecordBatch) -> pa.RecordBatch:
    return with_column(batch, [os.getpid()] * batch.num_rows)


@pytest.mark.parametrize("step", [letters, bucket, worker])
def test_the_order_of_sets_hashes_and_the_process_are_found_with_one_row(
    step: Function, elsewhere: Elsewhere
) -> None:
    evidence = found(StepSeesProcess, shop(step, columns="user string not null"), elsewhere=elsewhere)
    assert evidence["rows"].count("{") == 1
    assert evidence["first"] != evidence["second"]


def of_a_set(batch: pa.RecordBatch) -> pa.RecordBatch:
    print("a function may print")
    return with_column(batch, ["".join(sorted({user, "a", "b"})) for user in batch["user"].to_pylist()], pa.string())


def test_a_set_that_is_sorted_and_a_function_that_cannot_leave_the_process_are_fine(elsewhere: Elsewhere) -> None:
    lock = threading.Lock()

    def locked(batch: pa.RecordBatch) -> pa.RecordBatch:
        with lock:
            return letters(batch)

    assert elsewhere.rows(locked, pa.record_batch({"user": ["a"]}), pa.schema([])) is None
    for step in (of_a_set, locked):
        definite(Ground.of(shop(step, columns="user string not null")), elsewhere=elsewhere)


def test_a_simulation_tries_functions_in_another_process() -> None:
    with pytest.raises(StepSeesProcess, match="bucket"):
        simulate(shop(bucket, columns="user string not null"))


# What raises.


def priced(batch: pa.RecordBatch) -> pa.RecordBatch:
    return with_column(batch, [amount * 1.2 for amount in batch["amount"].to_pylist()], pa.float64())


def initial(batch: pa.RecordBatch) -> pa.RecordBatch:
    return with_column(batch, [user[0] for user in batch["user"].to_pylist()], pa.string())


def test_a_null_that_a_function_does_not_take_is_shown_in_one_row() -> None:
    evidence = found(StepRaises, shop(priced))
    assert evidence["rows"].count("{") == 1
    assert "amount: None" in evidence["rows"]
    assert "TypeError" in evidence["error"]


def test_columns_that_cannot_be_null_have_no_nulls() -> None:
    definite(Ground.of(shop(priced, columns="id long, amount double not null")))


def test_an_empty_text_is_tried() -> None:
    evidence = found(StepRaises, shop(initial, columns="user string not null"))
    assert evidence["rows"] == "{user: ''}"
    assert "IndexError" in evidence["error"]


def test_a_function_that_does_not_take_an_empty_batch_is_told_so_as_by_a_run() -> None:
    def average(batch: pa.RecordBatch) -> pa.RecordBatch:
        return with_column(batch, [sum(batch["id"].to_pylist()) // batch.num_rows] * batch.num_rows)

    with pytest.raises(SchemaUnknown, match="average"):
        Ground.of(shop(average))


def test_the_error_reads_as_a_user_sees_it() -> None:
    with pytest.raises(StepSeesCuts) as raised:
        definite(Ground.of(shop(total, columns="id long not null")))
    lines = str(raised.value).splitlines()
    assert lines[0] == "TG-0954: output 'lake': map_batches(total) depends on how rows are cut into batches"
    assert lines[2:4] == ["  as one batch:       {rows: 2}", "  row by row:         {rows: 1}, {rows: 1}"]
