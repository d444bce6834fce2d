"""The public strategies draw lawful values alone, and are neither slow nor choosy."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.depth import examples

from tidegauge.dataflow import Antichain, Order
from tidegauge.dataflow.order import has, less_than, normal
from tidegauge.engine.arrowtypes import carried
from tidegauge.remap.fromtime import FROM_TIMES, FromTime, checked
from tidegauge.remap.frontier import ORIGIN, Frontier
from tidegauge.sinks.columns import stored
from tidegauge.sources.ddl import parse_ddl, to_ddl
from tidegauge.testing.strategies import (
    RemapHistory,
    StreamRecord,
    advancing_frontiers,
    antichains,
    arrivals,
    clock_frontiers,
    cut_twice,
    cuts,
    orders,
    record_streams,
    remap_histories,
    rows,
    schemas,
    shared_histories,
    summaries,
    times,
)

quick = settings(max_examples=examples(100), deadline=None, suppress_health_check=[])
"""As Hypothesis judges the strategies of users: one that is slow, or refuses most of what it draws, fails."""


@quick
@given(orders(), st.data())
def test_times_and_summaries_are_those_of_their_order(order: Order[Any], data: st.DataObject) -> None:
    time, summary = data.draw(times(order)), data.draw(summaries(order))
    assert has(order)(time)
    assert order.less_equal(order.minimum, time)
    assert normal(order, summary) == normal(order, normal(order, summary))


@quick
@given(orders(), st.data())
def test_no_element_of_an_antichain_is_before_another(order: Order[Any], data: st.DataObject) -> None:
    found = data.draw(antichains(order))
    assert found.order is order
    assert not any(less_than(order, a, b) for a in found for b in found)


@quick
@given(st.sampled_from(list(FROM_TIMES.values())), st.data())
def test_the_frontiers_of_a_clock_are_such_as_it_has(clock: FromTime, data: st.DataObject) -> None:
    frontier = data.draw(clock_frontiers(clock))
    assert checked(clock, frontier) is frontier
    assert clock.parse(clock.render(frontier)) == Frontier(frontier)


@quick
@given(advancing_frontiers(min_size=2))
def test_frontiers_that_advance_never_go_back_and_end_at_most_once(walk: list[Frontier]) -> None:
    assert 2 <= len(walk) <= 8
    assert all(later.follows(earlier) for earlier, later in pairwise([ORIGIN, *walk]))
    assert not any(frontier.sealed for frontier in walk[:-1])


@quick
@given(remap_histories(compacted=True))
def test_a_history_is_one_that_a_table_takes_and_they_agree(history: RemapHistory) -> None:
    table = history.table()
    assert (table.since, table.upper) == (history.since, history.upper)
    epochs = range(history.since, history.upper)
    assert [table.frontier_at(epoch) for epoch in epochs] == [history.frontier_at(epoch) for epoch in epochs]
    bound = [epoch for epoch, _ in history.bindings]
    assert bound == sorted({*bound})
    assert all(epoch in epochs for epoch in bound)


@quick
@given(shared_histories(["a", "b", "c"], compacted=True))
def test_histories_of_one_timeline_share_its_ends(found: dict[str, RemapHistory]) -> None:
    assert list(found) == ["a", "b", "c"]
    assert len({(history.since, history.upper) for history in found.values()}) == 1
    assert [history.table(name).source for name, history in found.items()] == ["a", "b", "c"]


@quick
@given(record_streams().flatmap(lambda stream: st.tuples(st.just(stream), arrivals(stream))))
def test_however_a_stream_comes_each_partition_comes_once_in_its_sequence(
    case: tuple[list[StreamRecord], list[list[StreamRecord]]],
) -> None:
    stream, batches = case
    came = [record for batch in batches for record in batch]
    for partition in {record.partition for record in stream}:
        of_it = [record for record in stream if record.partition == partition]
        assert [record for record in came if record.partition == partition] == of_it
        assert all(a.position < b.position for a, b in pairwise(of_it))
    assert len(came) == len(stream)


@quick
@given(cut_twice(st.binary(max_size=9), cuts))
def test_the_pieces_of_a_cut_make_up_the_whole(ways: tuple[list[bytes], list[bytes]]) -> None:
    assert b"".join(ways[0]) == b"".join(ways[1])


@quick
@given(schemas())
def test_a_schema_is_carried_and_stored_and_written_as_it_is(schema: pa.Schema) -> None:
    types = {field.name: field.type for field in schema}
    assert {field.name: field.type for field in carried(schema, where="orders")} == types
    assert [str(field.type) for field in stored(stored(schema))] == [str(field.type) for field in stored(schema)]
    assert parse_ddl(to_ddl(schema)) == schema


def pairs_of(kind: pa.DataType, value: Any) -> list[Any]:
    """The keys of every map within a value."""
    if value is None:
        return []
    if pa.types.is_map(kind):
        return [[key for key, _ in value], *(k for _, v in value for k in pairs_of(kind.item_type, v))]
    if pa.types.is_list(kind):
        return [keys for item in value for keys in pairs_of(kind.value_type, item)]
    if pa.types.is_struct(kind):
        return [keys for field in kind for keys in pairs_of(field.type, value[field.name])]
    return []


@quick
@given(rows())
def test_rows_hold_what_their_schema_says(batch: pa.RecordBatch) -> None:
    batch.validate(full=True)
    for field, column in zip(batch.schema, batch.columns, strict=True):
        assert field.nullable or not column.null_count
        for value in column.to_pylist():
            assert all(len(set(map(repr, keys))) == len(keys) for keys in pairs_of(field.type, value))


class Words:
    """An order of the user's own: words are beyond all that they begin with."""

    minimum, total = "", False

    def less_equal(self, a: str, b: str, /) -> bool:
        return b.startswith(a)

    def sort_key(self, word: str, /) -> str:
        return word


@quick
@given(antichains(Words(), times=st.text("ab", max_size=3)))
def test_an_order_of_the_users_own_brings_its_times(found: Antichain[str]) -> None:
    assert not any(a != b and b.startswith(a) for a in found for b in found)
