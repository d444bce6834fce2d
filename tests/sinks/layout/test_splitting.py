"""Splitting and sorting rows: the same rows, in pieces of one partition each, in order."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from tests.depth import deep

from tidegauge.sinks.layout.clustering import clustered
from tidegauge.sinks.layout.splitting import arranged, split

ROW = st.tuples(
    st.sampled_from([None, "DE", "FR", "a/b"]),
    st.sampled_from([None, 0, 1, -7]),
    st.none() | st.integers(-3, 3),
    st.none() | st.sampled_from([0.0, -1.5, float("inf")]),
)
SCHEMA = pa.schema([("country", pa.string()), ("bucket", pa.int32()), ("n", pa.int64()), ("x", pa.float64())])


def table(rows: list[tuple[Any, ...]], cuts: list[int]) -> pa.Table:
    """Return rows, each with its place, in chunks."""
    listed = [{**dict(zip(SCHEMA.names, row, strict=True)), "place": at} for at, row in enumerate(rows)]
    whole = pa.Table.from_pylist(listed, schema=SCHEMA.append(pa.field("place", pa.int64())))
    ends = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    pieces = [whole.slice(start, end - start) for start, end in pairwise(ends)]
    return pa.concat_tables(pieces) if pieces else whole


def rank(value: Any) -> tuple[bool, Any]:
    return value is None, value if value is not None else 0


@deep(300)
@given(
    rows=st.lists(ROW, max_size=40),
    cuts=st.lists(st.integers(0, 40), max_size=3),
    partition=st.sampled_from([[], ["country"], ["bucket", "country"]]),
    sort=st.sampled_from([[], ["n"], ["x", "n"]]),
)
def test_what_is_split_is_what_was_there(
    rows: list[Any], cuts: list[int], partition: list[str], sort: list[str]
) -> None:
    pieces = list(split(table(rows, cuts), partition, sort))
    assert Counter(row["place"] for _, piece in pieces for row in piece.to_pylist()) == Counter(range(len(rows)))
    assert len({values for values, _ in pieces}) == len(pieces)
    for values, piece in pieces:
        listed = piece.to_pylist()
        assert {tuple(row[name] for name in partition) for row in listed} == {
            tuple(None if text is None else int(text) if name == "bucket" else text for name, text in values)
        }
        order = [(*(rank(row[name]) for name in sort), row["place"]) for row in listed]
        assert order == sorted(order)


@deep(200)
@given(
    rows=st.lists(ROW, max_size=40),
    cuts=st.lists(st.integers(0, 40), max_size=6),
    sort=st.sampled_from([["n"], ["x", "n"], ["country"]]),
    at_once=st.integers(1, 12),
)
def test_rows_of_many_files_are_sorted_as_those_of_one(
    rows: list[Any], cuts: list[int], sort: list[str], at_once: int
) -> None:
    whole = table(rows, cuts)
    groups = [pa.Table.from_batches([batch]) for batch in whole.to_batches()]
    found = list(
        clustered(
            [g.num_rows for g in groups],
            lambda at, names: groups[at].select(names),
            whole.schema.names,
            sort,
            at_once,
        )
    )
    assert all(piece.num_rows <= at_once for piece in found)
    assert [row for piece in found for row in piece.to_pylist()] == arranged(whole, sort).to_pylist()
