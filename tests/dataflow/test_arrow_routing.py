"""Routing Arrow batches by a column: a row goes where its key would go as a record, however the batch is laid out."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tidegauge.dataflow
from tidegauge.dataflow import Worker, arrow, records
from tidegauge.errors.dataflow import UnroutableKey

RunOn: TypeAlias = Callable[[Callable[[Worker], Any]], list[Any]]

TEXT = st.lists(st.none() | st.text(max_size=9) | st.text("ab", min_size=60, max_size=140))
TEXT_TYPES = [
    pa.string(),
    pa.large_string(),
    pa.binary(),
    pa.large_binary(),
    pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.uint32(), pa.large_binary()),
]
SIGNED = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
UNSIGNED = [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]


def batch_of(keys: pa.Array) -> pa.RecordBatch:
    return pa.record_batch({"row": pa.array(range(len(keys)), pa.int64()), "key": keys})


def expected(keys: list[Any], peers: int) -> dict[int, list[int]]:
    homes = [0 if key is None else records.worker_of(key, peers) for key in keys]
    return {peer: [row for row, home in enumerate(homes) if home == peer] for peer in sorted(set(homes))}


def rows(pieces: list[tuple[int, Any]]) -> dict[int, list[int]]:
    assert [peer for peer, _ in pieces] == sorted({peer for peer, _ in pieces})
    return {peer: piece.column("row").to_pylist() for peer, piece in pieces}


@settings(deadline=None)
@given(TEXT, st.sampled_from(TEXT_TYPES), st.integers(1, 5), st.integers(0, 3), st.sampled_from([0, 2, arrow.FEW]))
@example(["a" * arrow.LONG, "a" * (arrow.LONG + 1), "", None], pa.string(), 97, 0, 0)
@example(["a", "a\0", "\0a"], pa.string(), 97, 1, 0)
def test_text_goes_where_records_of_it_go(
    keys: list[Any], kind: pa.DataType, peers: int, skip: int, few: int
) -> None:
    """Whether a batch has few values, which are hashed one by one, or many."""
    batch = batch_of(pa.array(keys, pa.string()).cast(kind))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow, "FEW", few)
        assert rows(arrow.route("key")(batch, peers)) == expected(keys, peers)
        sliced = arrow.route("key")(batch.slice(skip), peers)
    assert rows(sliced) == {
        peer: [row + skip for row in found] for peer, found in expected(keys[skip:], peers).items()
    }


@settings(deadline=None)
@given(st.data(), st.sampled_from([*SIGNED, *UNSIGNED, pa.bool_()]), st.integers(1, 5) | st.just(300))
def test_integers_go_to_their_remainder(data: st.DataObject, kind: pa.DataType, peers: int) -> None:
    if kind == pa.bool_():
        values: Any = st.booleans()
    else:
        signed = pa.types.is_signed_integer(kind)
        bits = kind.bit_width - signed
        values = st.integers(-(2**bits) if signed else 0, 2**bits - 1)
    keys = data.draw(st.lists(st.none() | values))
    assert rows(arrow.route("key")(batch_of(pa.array(keys, kind)), peers)) == expected(keys, peers)


@settings(deadline=None)
@given(TEXT, st.lists(st.integers(0, 10)), st.booleans())
def test_a_table_is_routed_alike_in_whatever_chunks(keys: list[Any], cuts: list[int], encoded: bool) -> None:
    table = pa.Table.from_batches([batch_of(pa.array(keys, pa.string()))])
    bounds = sorted({0, len(keys), *(cut for cut in cuts if cut < len(keys))})
    chunked = pa.concat_tables([table.slice(a, b - a) for a, b in itertools.pairwise(bounds)] or [table])
    if encoded:
        chunked = chunked.set_column(1, "key", chunked.column("key").dictionary_encode())
    pieces = arrow.route("key")(chunked, 3)
    assert rows(pieces) == expected(keys, 3)
    assert all(piece.schema == chunked.schema for _, piece in pieces)


@pytest.mark.parametrize("kind", [*SIGNED, *UNSIGNED])
def test_the_least_and_the_greatest_integers_have_their_place(kind: pa.DataType) -> None:
    signed = pa.types.is_signed_integer(kind)
    bits = kind.bit_width - signed
    keys = [-(2**bits) if signed else 0, 2**bits - 1, None]
    assert rows(arrow.route("key")(batch_of(pa.array(keys, kind)), 5)) == expected(keys, 5)


@pytest.mark.parametrize("few", [0, arrow.FEW])
def test_bytes_under_a_missing_value_do_not_matter(monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    monkeypatch.setattr(arrow, "FEW", few)
    offsets, content = pa.py_buffer(np.array([0, 3, 6], np.int32).tobytes()), pa.py_buffer(b"ebbsea")
    only_the_first = pa.py_buffer(bytes([0b01]))
    keys = pa.StringArray.from_buffers(2, offsets, content, only_the_first)
    assert keys.to_pylist() == ["ebb", None]
    for column in (keys, pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), keys)):
        assert rows(arrow.route("key")(batch_of(column), 7)) == expected(["ebb", None], 7)
    assert records.worker_of("sea", 7) != 0


def test_fixed_size_bytes_views_and_missing_dictionary_values() -> None:
    for keys in (
        pa.array([b"ab", None, b"cd"], pa.binary(2)),
        pa.array(["ab", None, "cd" * 20], pa.string_view()),
        pa.DictionaryArray.from_arrays(pa.array([1, None, 0, 2], pa.int8()), pa.array(["x", "y", None])),
        pa.DictionaryArray.from_arrays(pa.array([1, None, 0], pa.int8()), pa.array([7, -3])),
        pa.DictionaryArray.from_arrays(pa.array([127, None], pa.int8()), pa.array(map(str, range(128)))),
    ):
        assert rows(arrow.route("key")(batch_of(keys), 5)) == expected(keys.to_pylist(), 5)


def test_a_batch_for_one_peer_is_not_copied() -> None:
    batch = batch_of(pa.array([4, 8]))
    [(peer, piece)] = arrow.route("key")(batch, 4)
    assert (peer, piece is batch) == (0, True)


@pytest.mark.parametrize(
    ("column", "problem"),
    [
        ("kye", "there is no such column; there are: key, amount, twice, twice"),
        ("amount", "of type double"),
        ("twice", "2 columns have this name"),
    ],
)
def test_a_column_that_cannot_say_where_is_refused_even_without_rows(column: str, problem: str) -> None:
    schema = pa.schema([("key", pa.int64()), ("amount", pa.float64()), ("twice", pa.int8()), ("twice", pa.int8())])
    for empty in (schema.empty_table(), pa.RecordBatch.from_pylist([], schema)):
        with pytest.raises(UnroutableKey, match=problem):
            arrow.route(column)(empty, 2)


def test_rows_and_records_of_one_key_meet_at_one_worker(
    run_on: Callable[[Callable[[Worker], Any]], list[Any]],
) -> None:
    words = [f"word {n}" for n in range(20)]

    def build(worker: Worker) -> dict[str, set[str]]:
        came: dict[str, set[str]] = {"rows": set(), "records": set()}
        with worker.dataflow("words") as scope:
            columns = scope.to_stream([batch_of(pa.array(words))])
            columns.exchange(arrow.route("key")).inspect(
                lambda _, batch: came["rows"].update(batch.column("key").to_pylist())
            )
            scope.to_stream([words]).exchange(records.route(str)).inspect(
                lambda _, batch: came["records"].update(batch)
            )
        return came

    workers = run_on(build)
    assert [came["rows"] for came in workers] == [came["records"] for came in workers]
    assert sorted(word for came in workers for word in came["rows"]) == sorted(words)
    assert all(came["rows"] for came in workers)


def test_only_what_is_for_arrow_knows_arrow() -> None:
    core = Path(tidegauge.dataflow.__file__).parent
    knowing = {
        path.relative_to(core).parts[0]
        for path in core.rglob("*.py")
        if re.search(r"^\s*(from|import) (pyarrow|numpy|pandas)\b", path.read_text(), re.MULTILINE)
    }
    assert knowing <= {"arrow.py", "capture"}
