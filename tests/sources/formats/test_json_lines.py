"""JSON lines: a range is its rows and its bad records, however it is cut."""

from __future__ import annotations

import io
import json
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.depth import deep

from tidegauge.errors.flow import InvalidArgument, ReservedColumn
from tidegauge.sources.ddl import parse_ddl
from tidegauge.sources.formats import Json
from tidegauge.sources.formats.boundaries import Boundaries
from tidegauge.sources.formats.json import decode_lines
from tidegauge.sources.formats.records import blocks

FORMAT = Json(
    "id long, name string, score double, at timestamp, tags array<string>, m map<string,long>, s struct<x:int>"
)
PLAIN = Json("id long, name string, score double, at timestamp, tags array<string>, s struct<x:int>")
"""A format whose lines only Arrow looks at; those of a map column are looked at by Python first."""

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
TIMES = st.datetimes(min_value=datetime(1900, 1, 1), max_value=datetime(2200, 1, 1))  # noqa: DTZ001
ROWS = st.fixed_dictionaries(
    {},
    optional={
        "id": st.none() | st.integers(-(2**63), 2**63 - 1),
        "name": st.none() | TEXT,
        "score": st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-1000, 1000),
        "at": st.none() | TIMES.map(str) | TIMES.map(lambda at: at.isoformat(timespec="microseconds") + "789Z"),
        "tags": st.none() | st.lists(st.none() | TEXT, max_size=3),
        "m": st.none() | st.dictionaries(TEXT, st.none() | st.integers(-9, 9), max_size=3),
        "s": st.none() | st.fixed_dictionaries({}, optional={"x": st.integers(-9, 9), "y": TEXT}),
        "other": st.recursive(
            st.none() | st.booleans() | TEXT, lambda inner: st.lists(inner, max_size=2), max_leaves=3
        ),
    },
)
ENDS = st.sampled_from([b"\n", b"\r\n"])
BLANK = st.sampled_from([b"", b" ", b"\t \r", b"\r"])
BAD = st.sampled_from(
    [
        b"{", b"}", b"null", b"5", b'"x"', b"[]", b"[{}]", b"{}{}", b"{} {}", b"{}null{}", b"{} null", b"nope",
        b'{"id": "1"}', b'{"id": 1.5}', b'{"id": 9223372036854775808}', b'{"name": 5}', b'{"name": "\xff"}',
        b'{"other": "\xc3"}', b'{"at": "soon"}', b'{"at": 5}', b'{"tags": "a"}', b'{"tags": [1]}', b'{"m": [1]}',
        b'{"m": {"a": "x"}}', b'{"m": {"a": 1.5}}', b'{"s": {"x": "1"}}', b'{"id": 1, "id": 2}',
        b'{"id":1}\r{"id":2}',
        b"{" + b'"a":{' * 50, b'{"a":' + b"[" * 3000 + b"}", b" \xef\xbb\xbf{}", b"\x00", b"{}\x00",
        b'{"name": "\x01"}',
        b'{"name": "\\ud800"}', b'{"id": 1,}', b'{"id": NaN}', b'{"score": "NaN"}', b"{'id': 1}", b'{"m": {}',
    ]
)  # fmt: skip


def written(row: dict[str, Any], ascii_only: bool) -> bytes:
    return json.dumps(row, ensure_ascii=ascii_only).encode()


def expected(row: dict[str, Any]) -> dict[str, Any]:
    at = row.get("at")
    score, inner = row.get("score"), row.get("s")
    return {
        "id": row.get("id"),
        "name": row.get("name"),
        "score": None if score is None else float(score),
        "at": None if at is None else _instant(at),
        "tags": row.get("tags"),
        "m": None if row.get("m") is None else list(row["m"].items()),
        "s": None if inner is None else {"x": inner.get("x")},
    }


def _instant(text: str) -> datetime:
    text = text.removesuffix("Z")
    whole, _, digits = text.partition(".")
    return datetime.fromisoformat(f"{whole}.{digits[:6]:0<6}").replace(tzinfo=UTC)


LINES = st.lists(
    st.tuples(
        st.one_of(
            st.builds(written, ROWS, st.booleans()).map(lambda line: ("good", line)),
            BLANK.map(lambda line: ("blank", line)),
            BAD.map(lambda line: ("bad", line)),
        ),
        ENDS,
    ),
    max_size=8,
)


@given(LINES, st.booleans(), st.booleans(), st.sampled_from([{}, {"size": 1}, {"size": 40}]))
@deep(250)
def test_a_file_is_its_good_rows_and_its_bad_records_in_place(
    read: Any, lines: list[tuple[tuple[str, bytes], bytes]], unended: bool, mark: bool, sizes: dict[str, int]
) -> None:
    _check_file(read, FORMAT, lines, unended=unended, mark=mark, sizes=sizes)
    without_maps = [line for line in lines if line[0][0] != "bad" or b'"m"' not in line[0][1]]
    _check_file(read, PLAIN, without_maps, unended=unended, mark=mark, sizes=sizes)


@example([(("bad", b"{}{}"), b"\n"), (("good", b"{}"), b"\n")])
@given(LINES)
@deep(25)
def test_two_objects_on_a_line_are_one_bad_record(read: Any, lines: list[tuple[tuple[str, bytes], bytes]]) -> None:
    twice = [(("bad", b"{}" + line), end) for (kind, line), end in lines if kind == "good"]
    _check_file(read, PLAIN, [*twice, *twice, (("good", b"{}"), b"\n")], unended=False, mark=False, sizes={})


def _check_file(
    read: Any,
    fmt: Json,
    lines: list[tuple[tuple[str, bytes], bytes]],
    *,
    unended: bool,
    mark: bool,
    sizes: dict[str, int],
) -> None:
    data = b"\xef\xbb\xbf" if mark else b""
    columns = [] if fmt.schema is None else fmt.schema.names
    rows, bad = [], []
    for i, ((kind, line), end) in enumerate(lines):
        if kind == "good":
            row = expected(json.loads(line))
            rows.append((len(data), {column: row[column] for column in columns}))
        elif kind == "bad":
            bad.append((len(data), line))
        data += line + (b"" if unended and i == len(lines) - 1 else end)
    assert read(fmt, data, **sizes) == (rows, bad)


@given(LINES, st.data())
@deep(100)
def test_it_does_not_matter_where_a_range_is_cut(
    read: Any, lines: list[tuple[tuple[str, bytes], bytes]], data: st.DataObject
) -> None:
    text = b"".join(line + end for (_, line), end in lines)
    boundaries = [0, *(i + 1 for i, byte in enumerate(text) if byte == 10)]
    a, b, c = sorted(data.draw(st.sampled_from(boundaries)) for _ in range(3))
    whole, first, second = (read(FORMAT, text, lower=x, upper=y) for x, y in ((a, c), (a, b), (b, c)))
    assert whole == (first[0] + second[0], first[1] + second[1])
    ends = [*boundaries[1:], len(text)]
    for position, row in whole[0]:
        end = next(end for end in ends if end > position)
        assert read(FORMAT, text, lower=position, upper=end) == ([(position, row)], [])


@given(st.binary(max_size=60) | st.text(alphabet='{}[]":,null1e \n\r\\u', max_size=60).map(str.encode), st.booleans())
@example(b"null\n", False)
@example(b"\nnull", True)
@deep(400)
def test_any_bytes_are_rows_and_bad_records(read: Any, data: bytes, with_maps: bool) -> None:
    schema = parse_ddl("a long, n string, m map<string,long>" if with_maps else "a long, n string")
    rows, bad = read(FORMAT, data, schema=schema)
    told = {position for position, _ in rows} | {position for position, _ in bad}
    assert len(told) == len(rows) + len(bad)
    for position, raw in bad:
        assert data[position : position + len(raw)] == raw
    at = 0
    for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n") if len(data) else []:
        start = at + (3 if data.startswith(b"\xef\xbb\xbf") else 0)
        assert (start in told) == bool(line.strip(b" \t\r\n"))
        at += len(line) + 1
    FORMAT.infer(data)


@given(st.lists(st.sampled_from([b"{}", b"", b'{"a":"bc"}', b"\r"]), max_size=12), st.data())
def test_boundaries_and_cuts_are_line_beginnings(lines: list[bytes], data: st.DataObject) -> None:
    text = b"\n".join(lines)
    boundaries = [0, *(i + 1 for i, byte in enumerate(text) if byte == 10)]
    lower = data.draw(st.sampled_from(boundaries))
    upper = data.draw(st.integers(lower, len(text)))
    stream = io.BytesIO(text)
    assert FORMAT.last_boundary(stream, lower, upper) == max(b for b in boundaries if lower <= b <= upper)
    upper = data.draw(st.sampled_from([b for b in boundaries if b >= lower]))
    size = data.draw(st.integers(1, 20))
    cuts, at = [], lower
    while following := [b for b in boundaries if at + size <= b < upper]:
        at = following[0]
        cuts.append(at)
    assert FORMAT.cuts(stream, lower, upper, size) == cuts


def test_a_cut_is_the_first_boundary_that_is_far_enough() -> None:
    stream = io.BytesIO(b"{}\n" * 4)
    assert [FORMAT.cuts(stream, 0, 12, size) for size in (1, 3, 4, 11, 12)] == [[3, 6, 9], [3, 6, 9], [6], [], []]


def test_a_block_is_bounded_whatever_the_length_of_a_record() -> None:
    data = b"{}\n" + b"x" * 100_000 + b"\n{}\n"
    found = list(blocks(io.BytesIO(data), Boundaries(quote=None), lower=0, upper=None, size=64, limit=100))
    assert all(len(block.data) <= 100 + 2 * 64 for block in found)
    assert [block.position for block in found if block.oversized] == [3]
    assert found[-1].position + len(found[-1].data) == len(data)


@pytest.mark.parametrize(
    ("ddl", "value", "found"),
    [
        ("a boolean", "true", True),
        ("a byte", "-128", -128),
        ("a short", "32767", 32767),
        ("a int", "5", 5),
        ("a float", "0.5", 0.5),
        ("a double", "3", 3.0),
        ("a string", '"\\u00e9\\n"', "é\n"),
        ("a binary", '"AAH/"', b"\x00\x01\xff"),
        ("a date", '"2024-02-29"', date(2024, 2, 29)),
        ("a timestamp", '"2024-02-29"', datetime(2024, 2, 29, tzinfo=UTC)),
        ("a timestamp", '"2024-02-29 01:02:03"', datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC)),
        ("a timestamp", '"2024-02-29T01:02:03+02:00"', datetime(2024, 2, 28, 23, 2, 3, tzinfo=UTC)),
        ("a timestamp", '"2024-02-29T01:02:03.123456789-0100"', datetime(2024, 2, 29, 2, 2, 3, 123456, tzinfo=UTC)),
        ("a timestamp_ntz", '"2024-02-29T01:02:03.5"', datetime(2024, 2, 29, 1, 2, 3, 500000)),  # noqa: DTZ001
        ("a decimal(10,2)", "12.5", Decimal("12.50")),
        ("a decimal(10,2)", '"12.5"', Decimal("12.50")),
        ("a array<date>", '["2024-02-29", null]', [date(2024, 2, 29), None]),
        ("a array<struct<b:binary>>", '[{"b":"AA=="}, null]', [{"b": b"\0"}, None]),
        (
            "a map<string,decimal(30,1)>",
            '{"k": 12345678901234567890123.5}',
            [("k", Decimal("12345678901234567890123.5"))],
        ),
        ("a map<string,map<string,date>>", '{"k": {"d": "2024-02-29"}}', [("k", [("d", date(2024, 2, 29))])]),
        ("a map<string,array<double>>", '{"k": [1, 2.5, null]}', [("k", [1.0, 2.5, None])]),
        ("a struct<m:map<string,int>,x:int>", '{"m": {"k": 1}, "x": 2}', {"m": [("k", 1)], "x": 2}),
        ("a map<string,int>", '{"k": 1, "K": 2}', [("k", 1), ("K", 2)]),
        ("a map<string,double>", '{"k": 1e-999999999999999999999}', [("k", 0.0)]),
    ],
)
def test_every_type_is_read(read: Any, ddl: str, value: str, found: Any) -> None:
    line = b'{"a": ' + value.encode() + b"}\n"
    assert read(Json(ddl), line + b'{"a": null}\n') == ([(0, {"a": found}), (len(line), {"a": None})], [])


@pytest.mark.parametrize(
    ("ddl", "value"),
    [
        ("a byte", "128"),
        ("a int", "1.0"),
        ("a date", "5"),
        ("a date", '"2023-02-29"'),
        ("a timestamp", '""'),
        ("a binary", '"A"'),
        ("a binary", '"AA==\\n"'),
        ("a decimal(4,2)", "123.45"),
        ("a decimal(4,2)", "1.234"),
        ("a array<date>", '["2024-02-29", "x"]'),
        ("a map<string,date>", '{"k": "x"}'),
        ("a struct<x:array<timestamp>>", '{"x": ["2024-01-01", "?"]}'),
        ("a int not null", "null"),
        ("a struct<x:int not null>", '{"x": null}'),
    ],
)
def test_a_value_that_does_not_fit_is_a_bad_record_among_good_ones(read: Any, ddl: str, value: str) -> None:
    good = b'{"a": null}\n' if "not null" not in ddl else b'{"a": {"x": 1}}\n' if "struct" in ddl else b'{"a": 1}\n'
    line = b'{"a": ' + value.encode() + b"}"
    rows, bad = read(Json(ddl), good + line + b"\n" + good)
    assert [position for position, _ in rows] == [0, len(good) + len(line) + 1]
    assert bad == [(len(good), line)]


def test_what_is_wrong_is_said() -> None:
    said: list[str] = []
    lines = b'{"id": "x"}\n{"at": "soon"}\n[]\n{"m": {"a": "b"}}\n{"id": 1.5}\n\xff\n'
    stream = io.BytesIO(lines)
    assert not list(
        decode_lines(stream, lower=0, upper=None, schema=FORMAT.schema, on_bad=lambda *bad: said.append(bad[2]))
    )
    assert said == [
        "column id: expected a number, found a string",
        "column at: a text that is no timestamp[us, tz=UTC]",
        "not one JSON object",
        "column m/[]/value: expected a number, found a string",
        "Failed to convert JSON to int64, couldn't parse:1.5",
        "not one JSON object",
    ]


@pytest.mark.parametrize("size", [1, 7, 64, 1 << 20])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_record_that_is_too_long_is_passed_over_wherever_blocks_end(read: Any, size: int, end: bytes) -> None:
    fits = b'{"id": 1, "name": "' + b"x" * 79 + b'"}'
    data = fits + end + fits + b" " + end + fits + end + b"y" * 500 + end + fits
    rows, bad = read(Json("id long"), data, size=size, limit=len(fits))
    step = len(fits) + len(end)
    assert [position for position, _ in rows] == [0, 2 * step + 1, len(data) - len(fits)]
    assert [position for position, _ in bad] == [step, 3 * step + 1]
    assert [raw for _, raw in bad] == [fits, b"y" * len(fits)]


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_a_nesting_bomb_is_a_bad_record(read: Any, opening: bytes) -> None:
    bomb = b'{"id": 1, "x": ' + opening * 200_000 + b"}"
    good = b'{"id": 1}\n'
    assert read(FORMAT, good + bomb + b"\n" + good)[1] == [(len(good), bomb)]
    assert Json().infer(bomb + b"\n" + good) == pa.schema([("id", pa.int64())])


def test_a_range_that_the_stream_does_not_have_is_no_empty_result(read: Any) -> None:
    with pytest.raises(EOFError, match="ends at byte 9, before 20"):
        read(Json("id long"), b'{"id":1}\n', upper=20)


def test_an_error_raised_for_a_bad_record_ends_the_reading() -> None:
    def refuse(*_bad: Any) -> None:
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        list(decode_lines(io.BytesIO(b"?\n"), lower=0, upper=None, schema=FORMAT.schema, on_bad=refuse))


@pytest.mark.parametrize(
    ("head", "ddl"),
    [
        (b'{"a":1,"b":"x","c":true,"d":null,"e":1.5}\n', "a long, b string, c boolean, d string, e double"),
        (b'{"a":1}\n{"a":2.5,"b":[]}\n{"b":[1]}\n{"b', "a double, b array<long>"),
        (b'\xef\xbb\xbf{"at":"2024-01-01T00:00:00Z"}\r\n', "at string"),
        (b'{"a":{"x":1}}\n?\n[]\n{"a":{"y":null},"z":{}}\n', "a struct<x:long,y:string>"),
        (b'{"a":1}\n{"a":"x"}\n', "a long"),
        (b'{"a":123456789012345678901}\n', "a double"),
    ],
)
def test_columns_are_inferred_from_complete_lines(head: bytes, ddl: str) -> None:
    assert Json().infer(head) == parse_ddl(ddl)


@pytest.mark.parametrize("head", [b"", b'{"a":1}', b"\n\n", b"{}\n", b"null\n"])
def test_nothing_is_inferred_without_a_column(head: bytes) -> None:
    assert Json().infer(head) is None


def test_a_format_is_a_value() -> None:
    assert pickle.loads(pickle.dumps(FORMAT)) == FORMAT
    assert Json(FORMAT.schema) == FORMAT
    assert Json("a long").describe() == {"format": "json", "schema": "a BIGINT"}
    assert Json().describe() == {"format": "json", "schema": None}


def test_what_cannot_be_read_is_refused_at_once() -> None:
    with pytest.raises(InvalidArgument, match="keys are strings"):
        Json("a array<map<int,string>>")
    with pytest.raises(ReservedColumn):
        Json("_epoch long")
    with pytest.raises(ReservedColumn):
        Json().infer(b'{"_epoch": 1}\n')
