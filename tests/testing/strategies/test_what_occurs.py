"""All that the public strategies promise does occur, and shrinks to something that you can read."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, find, settings
from hypothesis import strategies as st
from tests.depth import DEEP
from tests.simulation.reference import make_flow

from tidegauge.dataflow import INT, PARTITIONED, Bounded, Product
from tidegauge.dataflow.order import ALL, Lex
from tidegauge.remap.fromtime import GTID, NUMBERED
from tidegauge.remap.fromtime.protocol import LARGEST
from tidegauge.sources.ddl import parse_ddl
from tidegauge.testing import strategies
from tidegauge.testing.strategies import (
    advancing_frontiers,
    antichains,
    arrivals,
    clock_frontiers,
    column_names,
    column_types,
    cut_twice,
    cuts,
    frontiers,
    intervals,
    orders,
    partition_names,
    plans,
    positions,
    record_streams,
    remap_histories,
    rows,
    schemas,
    shared_histories,
    summaries,
    times,
    values,
)

PAIRS = Product(INT, INT)
PLAIN = column_types(nested=False)
PHASES = [Phase.generate, Phase.shrink] if DEEP else [Phase.generate]
"""To make what was found smaller takes longer than to find it, and is for `make long`."""
SEARCH = settings(max_examples=20_000, deadline=None, database=None, phases=PHASES)


def cells(wanted: Callable[[Any], Any]) -> Callable[[pa.RecordBatch], bool]:
    """Whether some cell of the first column is so."""
    return lambda batch: any(cell is not None and wanted(cell) for cell in batch.column(0).to_pylist())


OCCURS: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], Any], int]] = {
    "orders: pairs of either kind": (orders(), lambda o: isinstance(o, Lex | Product), 50),
    "orders: an end": (orders(), lambda o: isinstance(o, Bounded) and o.limit > 3, 20),
    "intervals: one partition": (intervals(), lambda i: i.single, 10),
    "intervals: all partitions": (intervals(), lambda i: i == ALL, 10),
    "times: all partitions": (times(PARTITIONED), lambda t: t[0] == ALL and t[1] > 2, 20),
    "summaries: one that only restricts": (summaries(PARTITIONED), lambda s: s and s[0] and s[1] is None, 20),
    "summaries: the identity": (summaries(PAIRS), lambda s: s is None, 4),
    "antichains: the empty one": (antichains(PAIRS), lambda a: not a, 15),
    "antichains: a wide one": (antichains(PAIRS), lambda a: len(a) == 3, 50),
    "partition_names: a quote": (partition_names(), lambda name: '"' in name, 12),
    "partition_names: the longest": (partition_names(), lambda name: len(name.encode()) == 1024, 1030),
    "positions: one that a float rounds": (positions(), lambda n: n == 2**53 + 1, 20),
    "positions: the largest": (positions(), lambda n: n == LARGEST, 20),
    "frontiers: no partition": (frontiers(), lambda f: not f and not f.sealed, 15),
    "frontiers: an end": (frontiers(), lambda f: f.sealed, 30),
    "clock_frontiers: two servers": (clock_frontiers(GTID), lambda f: len(f) == 2, 120),
    "clock_frontiers: a negative number": (clock_frontiers(NUMBERED), lambda f: "-1" in f, 40),
    "advancing_frontiers: a partition appears": (advancing_frontiers(), lambda w: len(w[-1]) > len(w[0]), 50),
    "advancing_frontiers: a source is idle": (advancing_frontiers(), lambda w: w[1:] and w[0] and w[0] == w[1], 90),
    "advancing_frontiers: it ends": (advancing_frontiers(), lambda w: w[-1].sealed and w[-1] and len(w) > 1, 70),
    "advancing_frontiers: two at once": (
        advancing_frontiers(),
        lambda w: any(len(b.since(a)) > 1 for a, b in pairwise(w)),
        80,
    ),
    "remap_histories: idle epochs at the end": (remap_histories(), lambda h: h.upper - h.bindings[-1][0] > 3, 90),
    "remap_histories: a source joins late": (remap_histories(), lambda h: h.bindings[0][0] == 4, 90),
    "remap_histories: idle epochs between": (
        remap_histories(),
        lambda h: any(b - a > 2 for (a, _), (b, _) in pairwise(h.bindings)),
        120,
    ),
    "remap_histories: compacted": (remap_histories(compacted=True), lambda h: 0 < h.since < h.bindings[-1][0], 130),
    "remap_histories: idle since": (remap_histories(compacted=True), lambda h: 0 < h.since == h.bindings[-1][0], 100),
    "remap_histories: an end": (remap_histories(), lambda h: h.bindings[-1][1].sealed, 100),
    "shared_histories: one never moved": (
        shared_histories(),
        lambda found: found["clicks"].bindings and not found["orders"].bindings,
        200,
    ),
    "record_streams: a hole": (record_streams(), lambda s: s and s[0].position > 0, 60),
    "record_streams: none": (record_streams(), lambda s: not s, 2),
    "record_streams: partitions that alternate": (
        record_streams(values=st.none(), max_hole=0),
        lambda s: len({r.partition for r in s[:2]}) == 2 and s[2:] and s[0].partition == s[2].partition,
        200,
    ),
    "cuts: an empty batch between two": (cuts([1, 2]), lambda p: len(p) == 3 and p[1] == [] and p[0] and p[2], 20),
    "cuts: none": (cuts([1, 2]), lambda pieces: pieces == [[1, 2]], 10),
    "arrivals: another sequence of partitions": (
        record_streams(values=st.none(), max_hole=0).flatmap(lambda s: st.tuples(st.just(s), arrivals(s))),
        lambda case: [record for batch in case[1] for record in batch] != case[0],
        260,
    ),
    "cut_twice: two ways": (cut_twice(st.just(b"ab"), cuts), lambda ways: ways[0] != ways[1], 40),
    "column_types: a list of structs": (
        column_types(),
        lambda t: pa.types.is_list(t) and pa.types.is_struct(t.value_type),
        60,
    ),
    "column_types: a map": (column_types(), pa.types.is_map, 50),
    "column_types: the widest decimal": (PLAIN, lambda t: t == pa.decimal128(38, 38), 40),
    "column_names: another script": (column_names(), lambda name: not name.isascii(), 5),
    "schemas: a column that is never null": (schemas(types=PLAIN), lambda s: not s.field(0).nullable, 60),
    "plans: nothing": (plans(make_flow), lambda p: not (p.acts or p.faults), 65),
    "plans: two kinds": (plans(make_flow), lambda p: len({fault.kind for fault in p.faults}) > 1, 220),
    "plans: two crashes and a write": (plans(make_flow, faults=["crash"]), lambda p: p.faults[1:] and p.acts, 255),
    "rows: none": (rows("s string"), lambda b: not b.num_rows, 70),
    "rows: a null": (rows("s string"), lambda b: b.column(0).null_count, 80),
    "rows: the largest integer": (rows("id long"), cells(lambda n: n == 2**63 - 1), 90),
    "rows: the least byte": (rows("id byte"), cells(lambda n: n == -128), 90),
    "rows: the widest number": (rows("d decimal(38,2)"), cells(lambda n: n == Decimal("9" * 36 + ".99")), 120),
    "rows: no number": (rows("x double"), cells(lambda x: x != x), 90),
    "rows: less than all": (rows("x float"), cells(lambda x: x == float("-inf")), 90),
    "rows: a character of four bytes": (rows("s string"), cells(lambda s: any(c > "\uffff" for c in s)), 90),
    "rows: a day long ago": (rows("day date"), cells(lambda day: day.year < 1000), 110),
    "rows: microseconds": (rows("at timestamp"), cells(lambda at: at.microsecond), 130),
    "rows: an empty list": (rows("l array<int>"), cells(lambda found: found == []), 120),
    "rows: a null within": (rows("l array<int>"), cells(lambda found: found == [None]), 160),
}


@pytest.mark.deep
@pytest.mark.parametrize("what", OCCURS)
def test_what_is_promised_occurs_and_shrinks_to_something_short(what: str) -> None:
    strategy, wanted, longest = OCCURS[what]
    found = find(strategy, wanted, settings=SEARCH)
    assert not DEEP or len(repr(found)) <= longest


def test_that_is_said_of_every_strategy() -> None:
    functions = {name for name in strategies.__all__ if name[0].islower()}
    assert {what.partition(":")[0] for what in OCCURS} == functions - {"values"}


def test_every_plain_type_of_a_schema_in_ddl_is_drawn_and_has_values() -> None:
    numbers = "byte, short, int, long, float, double"
    others = "boolean, string, binary, date, timestamp, timestamp_ntz"
    plain = f"{numbers}, {others}".split(", ")
    for field in parse_ddl(", ".join(f"c{i} {name}" for i, name in enumerate(plain))):
        find(PLAIN, lambda kind, wanted=field.type: kind == wanted, settings=SEARCH)  # type: ignore[misc]
        find(values(field.type), lambda value: value is not None, settings=SEARCH)
