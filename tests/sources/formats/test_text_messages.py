"""Messages of text: JSON, CSV, text and bytes. A message has its own ends, and its fate is its own."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.depth import deep
from tests.sources.formats import test_csv_records as records
from tests.sources.formats import test_json_lines as lines

import tidegauge as tg
from tidegauge.sources.formats import MessageFormat
from tidegauge.sources.formats.messages import CHUNK_BYTES, CHUNK_MESSAGES, Part, in_chunks
from tidegauge.sources.formats.records import BOM

JSON, CSV = lines.FORMAT, records.BARE
GOOD_JSON = st.tuples(lines.ROWS, st.booleans()).map(lambda row: lines.written(*row))
JSON_MESSAGES = st.lists(GOOD_JSON | lines.BAD, max_size=8)
CSV_GOOD = records.GOOD.map(lambda made: made[1])
CSV_MESSAGES = st.lists(CSV_GOOD | records.BAD.filter(bool), max_size=8)
ODD = [b"", b" ", b"\n", b"{}", b"1,2,3", b'"', BOM, BOM + b"{}", b"{}\n{}", b"a\nb"]
ANY = st.binary(max_size=12) | st.sampled_from(ODD)
TEXT = st.text(max_size=4).map(lambda text: text.encode("utf-8", "surrogatepass"))
FORMATS = [JSON, tg.Json("id long, name string"), CSV, tg.Csv("a string, b string", quote=None), tg.Text(), tg.Raw()]


@deep(50)
@given(JSON_MESSAGES)
def test_the_messages_of_json_are_the_lines_of_a_file(read: Any, decode: Any, values: list[bytes]) -> None:
    rows, bad = decode(JSON, values)
    found, refused = read(JSON, b"".join(value + b"\n" for value in values))
    assert [row for _, row in rows] == [row for _, row in found]
    assert [values[i].removesuffix(b"\r") for i, _, _ in bad] == [raw.removesuffix(b"\r") for _, raw in refused]


@deep(50)
@given(CSV_MESSAGES)
def test_the_messages_of_csv_are_the_records_of_a_file(read: Any, decode: Any, values: list[bytes]) -> None:
    rows, bad = decode(CSV, values)
    found, refused = read(CSV, b"".join(value + b"\n" for value in values))
    assert [row for _, row in rows] == [row for _, row in found]
    assert [values[i] for i, _, _ in bad] == [raw for _, raw in refused]


@deep(40)
@given(lines.ROWS, st.sampled_from([None, 0, 1, "\t"]), st.sampled_from([b"", b"\n", b"\r\n", b"\n\n", b" \n"]))
def test_json_may_be_written_on_many_lines(decode: Any, row: dict[str, Any], indent: Any, end: bytes) -> None:
    pretty = json.dumps(row, indent=indent).encode() + end
    for value in (pretty, pretty.replace(b"\n", b"\r\n"), b"\n" + pretty, BOM + pretty):
        found, bad = decode(JSON, [b"{}", value, b"{}"])
        assert bad == []
        assert found[1] == decode(JSON, [b"{}", lines.written(row, True)])[0][1]


NOT_ONE_OBJECT = [
    b"", b" ", b"\n", b"\r\n", BOM, b"{}{}", b"{}\n{}", b"{}\n\n{}\n", b"[{}]", b'{"name": "a\nb"}',
    b'{"name":\n"a', b'{"name": "\xff"}', b"null", b"{", b'{"id": 1e400}', b'{"id": ' + b"9" * 400 + b"}",
    b"{}" + BOM, b"\0",
]  # fmt: skip


@pytest.mark.parametrize("value", NOT_ONE_OBJECT)
def test_what_is_not_one_object_is_a_bad_record(decode: Any, value: bytes) -> None:
    rows, bad = decode(tg.Json("id long, name string"), [b'{"id": 1}', value, b'{"id": 2}'])
    assert [row["id"] for _, row in rows] == [1, 2]
    assert [i for i, _, _ in bad] == [1]


@pytest.mark.parametrize(
    ("value", "row"),
    [
        (b'1,"a\nb"', (1, "a\nb")),
        (b'1,"a\r\nb"\r\n', (1, "a\r\nb")),
        (b"1,a\n", (1, "a")),
        (BOM + b'"1",a', (1, "a")),
        (b'1,""', (1, "")),
        (b"1,", (1, None)),
        (b",", (None, None)),
        (b"1,a\n2,b", None),
        (b'1,"a\n', None),
        (b'1,a"', None),
        (b'1,"a"b"c"', None),
        (b"1,a\rb", None),
        (b"1", None),
        (b"1,2,3", None),
        (b"x,a", None),
        (b"", None),
        (b"\n", None),
        (BOM, None),
        (b"1,\xff", None),
    ],
)
def test_a_message_is_one_record_of_csv(decode: Any, value: bytes, row: Any) -> None:
    rows, bad = decode(tg.Csv("id long, note string"), [b'7,"x"', value, b"8,y", b'"9","z"'])
    found = {i: (row["id"], row["note"]) for i, row in rows}
    assert found.pop(0) == (7, "x")
    assert (found.pop(2), found.pop(3)) == ((8, "y"), (9, "z"))
    assert (found.get(1), [i for i, _, _ in bad]) == ((row, []) if row else (None, [1]))


def test_a_message_of_no_record_does_not_make_up_for_one_of_two(decode: Any) -> None:
    rows, bad = decode(tg.Csv("id long, note string"), [b"7,x", b"\n\n", b"1,a\n2,b", b"8,y"])
    assert [(i, row["id"]) for i, row in rows] == [(0, 7), (3, 8)]
    assert [i for i, _, _ in bad] == [1, 2]


def test_an_empty_message_is_called_so(decode: Any) -> None:
    for made in (tg.Json("id long"), tg.Csv("id long")):
        assert decode(made, [b"", b"\n"])[1] == [(i, "TG-0323", "an empty message") for i in range(2)]


@pytest.mark.parametrize("made", FORMATS)
@deep(60)
@given(values=st.lists(st.none() | ANY, max_size=8), data=st.data())
@example(values=[b'"', b'1,"a",2'], data=None)
def test_it_does_not_matter_how_values_are_batched(
    decode: Any, made: Any, values: list[bytes | None], data: st.DataObject | None
) -> None:
    cut = 1 if data is None else data.draw(st.integers(0, len(values)))
    whole, first, second = decode(made, values), decode(made, values[:cut]), decode(made, values[cut:])
    assert whole[0] == first[0] + [(i + cut, row) for i, row in second[0]]
    assert whole[1] == first[1] + [(i + cut, code, text) for i, code, text in second[1]]
    for i, row in whole[0]:
        assert decode(made, [values[i]]) == ([(0, row)], [])


@given(st.lists(st.none() | st.binary(max_size=6), max_size=6))
def test_raw_messages_are_their_bytes(decode: Any, values: list[bytes | None]) -> None:
    assert decode(tg.Raw(), values) == ([(i, {"value": value}) for i, value in enumerate(values)], [])


@given(st.lists(st.none() | st.binary(max_size=4) | TEXT))
def test_text_messages_are_their_text(decode: Any, values: list[bytes | None]) -> None:
    rows, bad = decode(tg.Text(), values)
    for i, row in rows:
        given = values[i]
        assert row["value"] == (None if given is None else given.decode())
    for i, _, _ in bad:
        with pytest.raises(UnicodeDecodeError):
            (values[i] or b"").decode()


def test_a_bad_record_among_many_is_told_apart(decode: Any) -> None:
    count = CHUNK_MESSAGES + 1000
    cases: list[tuple[Any, Callable[[int], bytes], bytes]] = [
        (tg.Json("id long"), lambda i: b'{"id":%d}' % i, b'{"id":"x"}'),
        (tg.Csv("id long"), lambda i: b"%d" % i, b"x"),
        (tg.Text(), lambda i: b"%d" % i, b"\xff"),
    ]
    for made, good, wrong in cases:
        values = [good(i) for i in range(count)]
        values[-5] = wrong
        rows, bad = decode(made, values)
        assert [i for i, _, _ in bad] == [count - 5]
        assert [i for i, _ in rows] == [i for i in range(count) if i != count - 5]
        assert all(str(i) == str(next(iter(row.values()))) for i, row in rows)


def test_no_value_is_a_row_of_nulls_unless_there_must_be_one(decode: Any) -> None:
    assert decode(tg.Json("id long"), [None, b'{"id": 1}']) == ([(0, {"id": None}), (1, {"id": 1})], [])
    rows, bad = decode(tg.Json("id long NOT NULL"), [None, b'{"id": 1}', b"{", None])
    assert rows == [(1, {"id": 1})]
    assert [(i, "NOT NULL" in text) for i, _, text in bad] == [(0, True), (2, False), (3, True)]


def test_a_chunk_holds_so_many_bytes_and_a_longer_value_is_bad(decode: Any) -> None:
    sizes: list[int] = []
    schema = pa.schema([("n", pa.int64())])

    def measured(chunk: Any) -> Part:
        sizes.append(sum(map(len, chunk)))
        return Part(pa.RecordBatch.from_pydict({"n": [len(value) for value in chunk]}, schema))

    given = [b"x" * n for n in (3, CHUNK_BYTES, 11, 12, CHUNK_BYTES // 2, CHUNK_BYTES // 2 - 30, CHUNK_BYTES + 5, 1)]
    bad: list[int] = []
    found = in_chunks(given, schema, lambda i, *_: bad.append(i), measured, limit=CHUNK_BYTES)
    assert bad == [6]
    assert found.rows["n"].to_pylist() == [len(value) for i, value in enumerate(given) if i != 6]
    assert found.indices is not None
    assert found.indices.to_pylist() == [0, 1, 2, 3, 4, 5, 7]
    assert max(sizes) <= CHUNK_BYTES


def test_columns_are_those_of_the_messages() -> None:
    assert tg.Json().infer_messages([None, b"{", b'{\n"id": 1}\n', b'{"s": "x"}']) == pa.schema(
        [("id", pa.int64()), ("s", pa.string())]
    )
    assert tg.Json().infer_messages([None, b""]) is None
    assert tg.Csv().infer_messages([b"id,1", b'"a\nb",2']) == pa.schema([("_c0", pa.string()), ("_c1", pa.int64())])
    assert tg.Csv().infer_messages([]) is None


@pytest.mark.parametrize("made", FORMATS)
def test_each_is_a_message_format_and_a_value(made: Any) -> None:
    assert isinstance(made, MessageFormat)
    assert pickle.loads(pickle.dumps(made)) == made
    assert isinstance(json.loads(json.dumps(made.describe()))["format"], str)
