"""CSV: a record is what RFC 4180 says, and a range is its rows and its bad records, however it is cut."""

from __future__ import annotations

import csv
import io
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.depth import deep

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.sources import AmbiguousHeader, CorruptFile, HeaderMismatch, UnsupportedType
from tidegauge.sources.ddl import parse_ddl
from tidegauge.sources.formats import Csv
from tidegauge.sources.formats.convert import from_text

SCHEMA = "id long, note string, gone string"
FORMAT = Csv(SCHEMA)
HEADER = b"more,note,id\r\n"
BARE = Csv("more string, note string, id long", header=False)

CHARACTERS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5)
TEXT = CHARACTERS | st.text(alphabet='a",\n\r \t;', max_size=5)
ENDS = st.sampled_from([b"\n", b"\r\n"])
BAD = st.sampled_from(
    [
        b"x",
        b",",
        b",,,",
        b",,x",
        b',a"b"c,1',
        b'"a"b,,1',
        b' "a",,1',
        b'"a" ,,1',
        b",\xff,1",
        b"\xff,,1",
        b",a\rb,1",
        b"\r,,1",
        b',,""',
    ]
)


def field(text: str | None) -> st.SearchStrategy[bytes]:
    """Write a field in one of the ways that RFC 4180 has for it."""
    if text is None:
        return st.just(b"")
    quoted = b'"' + text.replace('"', '""').encode() + b'"'
    if text == "" or any(c in text for c in '",\n\r'):
        return st.just(quoted)
    return st.sampled_from([quoted, text.encode()])


GOOD = st.tuples(st.none() | TEXT, st.none() | TEXT, st.none() | st.integers(-(2**63), 2**63 - 1)).flatmap(
    lambda row: st.tuples(
        st.just(("good", row)),
        st.tuples(field(row[0]), field(row[1]), field(None if row[2] is None else str(row[2]))).map(b",".join),
    )
)
RECORDS = st.lists(
    st.tuples(GOOD | BAD.map(lambda line: (("bad", None), line)) | st.just((("blank", None), b"")), ENDS), max_size=8
)


@given(RECORDS, st.booleans(), st.booleans(), st.sampled_from([{}, {"size": 1}, {"size": 40}]))
@deep(300)
def test_a_file_is_its_good_rows_and_its_bad_records_in_place(
    read: Any, records: list[Any], unended: bool, mark: bool, sizes: dict[str, int]
) -> None:
    data = (b"\xef\xbb\xbf" if mark else b"") + b"\n" + HEADER
    rows, bad = [], []
    for i, (((kind, row), record), end) in enumerate(records):
        if kind == "good":
            rows.append((len(data), {"id": row[2], "note": row[1], "gone": None}))
        elif kind == "bad":
            bad.append((len(data), record))
        data += record + (b"" if unended and i == len(records) - 1 else end)
    assert read(FORMAT, data, **sizes) == (rows, bad)


@given(RECORDS, st.data())
@deep(150)
def test_it_does_not_matter_where_a_range_is_cut(read: Any, records: list[Any], data: st.DataObject) -> None:
    text, boundaries = HEADER, [0, len(HEADER)]
    for (_, record), end in records:
        text += record + end
        boundaries.append(len(text))
    a, b, c = sorted(data.draw(st.sampled_from(boundaries)) for _ in range(3))
    whole, first, second = (read(FORMAT, text, lower=x, upper=y) for x, y in ((a, c), (a, b), (b, c)))
    assert whole == (first[0] + second[0], first[1] + second[1])
    for position, row in whole[0]:
        end = next(end for end in boundaries if end > position)
        assert read(FORMAT, text, lower=position, upper=end) == ([(position, row)], [])
    stream = io.BytesIO(text)
    upper = data.draw(st.integers(a, len(text)))
    assert FORMAT.last_boundary(stream, a, upper) == max(b for b in boundaries if a <= b <= upper)
    size, cuts, at = data.draw(st.integers(1, 30)), [], a
    while following := [b for b in boundaries if at + size <= b < c]:
        at = following[0]
        cuts.append(at)
    assert FORMAT.cuts(stream, a, c, size) == cuts


@given(RECORDS, st.integers(1, 9))
@deep(100)
def test_a_scan_finds_the_same_boundaries_whatever_it_reads_at_once(records: list[Any], size: int) -> None:
    text = b"".join(record + end for (_, record), end in records)
    found = FORMAT._boundaries.ends(text).tolist()
    stream = io.BytesIO(text)
    for upper in range(len(text) + 1):
        assert FORMAT._boundaries.last(stream, 0, upper, size=size) == max([0, *(b for b in found if b <= upper)])
    assert list(FORMAT._boundaries.cuts(stream, 0, len(text), 1, scan=size)) == [b for b in found if b < len(text)]


@given(st.lists(st.lists(TEXT, min_size=3, max_size=3).map(tuple), max_size=6))
@deep(100)
def test_what_pythons_csv_module_writes_is_read_as_it_reads_it(read: Any, rows: list[tuple[str, ...]]) -> None:
    file = io.StringIO(newline="")
    csv.writer(file, quoting=csv.QUOTE_ALL).writerows(rows)
    strings = Csv("a string, b string, c string", header=False)
    found, bad = read(strings, file.getvalue().encode())
    assert ([tuple(row.values()) for _, row in found], bad) == (rows, [])
    assert rows == [tuple(row) for row in csv.reader(io.StringIO(file.getvalue(), newline=""))]


@given(st.binary(max_size=60) | st.text(alphabet='",\r\n1a ;\0', max_size=60).map(str.encode), st.booleans())
@example(b'a,"b\n', False)
@deep(400)
def test_any_bytes_are_rows_and_bad_records(read: Any, data: bytes, quoting: bool) -> None:
    fmt = Csv("more string, note string, id long", header=False, quote='"' if quoting else None)
    rows, bad = read(fmt, data)
    told = [position for position, _ in rows] + [position for position, _ in bad]
    begins = [0, *fmt._boundaries.ends(data).tolist()]
    if data.startswith(b"\xef\xbb\xbf"):
        begins[0] = 3
    stops = [*begins[1:], len(data)]
    records = [a for a, b in zip(begins, stops, strict=True) if data[a:b].removesuffix(b"\n").removesuffix(b"\r")]
    assert sorted(told) == records
    for position, raw in bad:
        assert data[position : position + len(raw)] == raw
    Csv(header=False).infer(data)


VALUES = [
    "1", " 1", "1\t", "+1", "-1", "01", "0x1F", "1.0", "1e3", ".5", "5.", "NaN", "-inf", "1e400", "true", "TRUE",
    "tRue", "f", "2020-01-02", " 2020-01-02 ", "2020-1-2", "20200102", "2020-01-02T03:04:05", "2020-01-02 03:04",
    "2020-01-02T03", "2020-01-02 03:04:05.123", "2020-01-02 03:04:05.1234567", "2020-01-02T03:04:05Z",
    "2020-01-02T03:04:05.1+02:00",
    "2020-01-02T03:04:05-0200", "2020-01-02T03:04:05+02", "2020-01-02Z", "2020-01-02 24:00:00", "1.255",
    "123456789012", "0001-01-01", "9999-12-31", "x", " ", "300", "3e", "1_0", "\u0661", "0",
]  # fmt: skip


@pytest.mark.parametrize(
    "ddl",
    ["byte", "long", "float", "double", "boolean", "date", "timestamp", "timestamp_ntz", "decimal(10,2)", "string"],
)
def test_a_record_is_read_the_same_alone_and_among_all_others(read: Any, ddl: str) -> None:
    fmt = Csv(f"a {ddl}, b int", header=False)
    alone = {value: read(fmt, f"{value},1".encode()) for value in VALUES}
    rows, bad = read(fmt, "".join(f"{value},1\n" for value in VALUES).encode())
    # repr, because NaN is not itself
    assert repr([row for _, row in rows]) == repr([row for value in VALUES for _, row in alone[value][0]])
    assert [raw for _, raw in bad] == [raw for value in VALUES for _, raw in alone[value][1]]


@pytest.mark.parametrize(
    ("ddl", "text", "found"),
    [
        ("boolean", "True", True),
        ("short", "-32768", -32768),
        ("float", "0.5", 0.5),
        ("double", " 1e3", 1000.0),
        ("string", " a ", " a "),
        ("binary", "a\u00e9", b"a\xc3\xa9"),
        ("date", "2024-02-29", date(2024, 2, 29)),
        ("timestamp", "2024-02-29 01:02:03", datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC)),
        ("timestamp", "2024-02-29T01:02:03.5Z", datetime(2024, 2, 29, 1, 2, 3, 500000, tzinfo=UTC)),
        ("timestamp", "2024-02-29T01:02:03+02:00", datetime(2024, 2, 28, 23, 2, 3, tzinfo=UTC)),
        ("timestamp", "2024-02-29", datetime(2024, 2, 29, tzinfo=UTC)),
        ("timestamp", "2024-02-29 01:02:03.123456789", datetime(2024, 2, 29, 1, 2, 3, 123456, tzinfo=UTC)),
        ("timestamp_ntz", "2024-02-29 01:02", datetime(2024, 2, 29, 1, 2)),  # noqa: DTZ001
        ("decimal(10,2)", "12.5", Decimal("12.50")),
    ],
)
def test_every_type_is_read_among_values_that_are_not_of_it(read: Any, ddl: str, text: str, found: Any) -> None:
    fmt = Csv(f"a {ddl}, b int", header=False)
    assert read(fmt, f"{text},1".encode()) == ([(0, {"a": found, "b": 1})], [])
    rows, _ = read(fmt, f"?,1\n{text},1\n,2\n".encode())
    assert [row for _, row in rows][-2:] == [{"a": found, "b": 1}, {"a": None, "b": 2}]


def test_null_is_what_is_said_to_be_null_and_not_quoted(read: Any) -> None:
    data = b'NA,1\n"NA",2\n,3\n"",4\n-,NA\n5,""\n6,\n'
    fmt = Csv("a string, b long", header=False, null=("NA", "-"))
    rows, bad = read(fmt, data)
    assert [tuple(row.values()) for _, row in rows] == [(None, 1), ("NA", 2), ("", 3), ("", 4), (None, None)]
    assert [raw for _, raw in bad] == [b'5,""', b"6,"]


def test_null_in_a_column_that_is_not_null_is_a_bad_record(read: Any) -> None:
    rows, bad = read(Csv("a int not null, b string"), b"a,b\n1,x\n,y\n")
    assert ([row["a"] for _, row in rows], bad) == ([1], [(8, b",y")])
    assert read(Csv("a int not null, b string"), b"b\nx\n")[1] == [(2, b"x")]


def test_without_quotes_every_newline_ends_a_record(read: Any) -> None:
    fmt = Csv("a string, b string", header=False, quote=None, delimiter="|")
    rows, bad = read(fmt, b'"x|y"\n5" disk|,\n')
    assert ([tuple(row.values()) for _, row in rows], bad) == ([('"x', 'y"'), ('5" disk', ",")], [])


def test_other_quotes_and_delimiters(read: Any) -> None:
    rows, bad = read(Csv("a string, b long", quote="'", delimiter="\t"), b"b\ta\n1\t'it''s\n\"'\n")
    assert ([row for _, row in rows], bad) == ([{"a": "it's\n\"", "b": 1}], [])


def test_an_unclosed_quote_takes_what_follows_into_one_bad_record(read: Any) -> None:
    assert read(FORMAT, HEADER + b',"a,1\n,b,2\n') == ([], [(len(HEADER), b',"a,1\n,b,2')])
    assert FORMAT.last_boundary(io.BytesIO(HEADER + b',"a,1\n,b,2\n'), 0, len(HEADER) + 11) == len(HEADER)


@pytest.mark.parametrize("size", [1, 7, 64, 1 << 20])
def test_a_record_that_is_too_long_is_passed_over_wherever_blocks_end(read: Any, size: int) -> None:
    fits = b'"' + b"\n" * 96 + b'",,1'
    data = fits + b"\n" + b'"' + b"y\n" * 300 + b'",,1\n' + fits + b"\r\n"
    rows, bad = read(BARE, data, size=size, limit=len(fits))
    assert [position for position, _ in rows] == [0, len(data) - len(fits) - 2]
    assert bad == [(len(fits) + 1, (b'"' + b"y\n" * 300)[: len(fits)])]


def test_the_header_is_no_place_to_cut() -> None:
    data = b'\n\r\n"a\nb",c\n1,2\n3,4\n'
    stream, header = io.BytesIO(data), b'\n\r\n"a\nb",c\n'
    fmt = Csv("c long")
    assert fmt.header(stream) == header
    assert [fmt.last_boundary(stream, 0, upper) for upper in (1, 3, len(header) - 1)] == [0, 0, 0]
    assert fmt.last_boundary(stream, 0, len(header)) == len(header)
    assert fmt.cuts(stream, 0, len(data), 1) == [len(header), len(header) + 4]
    assert Csv("c long", header=False).header(stream) == b""
    assert [fmt.header(io.BytesIO(text)) for text in (b"", b"\n\n", b"a,c")] == [b"", b"", b"a,c"]


def test_a_file_without_a_header_in_sight_is_corrupt() -> None:
    with pytest.raises(CorruptFile):
        FORMAT.header(io.BytesIO(b'"' + b"\0\n" * (1 << 20)))


def test_a_header_must_name_a_column_and_name_it_once(read: Any) -> None:
    with pytest.raises(HeaderMismatch, match="'x', 'y'"):
        read(FORMAT, b"x,y\n1,2\n")
    with pytest.raises(AmbiguousHeader, match="'id'"):
        read(FORMAT, b"id,id\n1,2\n")
    with pytest.raises(AmbiguousHeader):
        Csv().infer(b"a,a\n1,2\n")


@pytest.mark.parametrize("text", [b"id,note\r1,a\r2,b\r", b"id,note\r1,a"])
def test_lines_that_end_with_cr_alone_are_no_header_without_rows(read: Any, text: bytes) -> None:
    with pytest.raises(CorruptFile, match="end with CR alone"):
        read(FORMAT, text)
    rows, _bad = read(FORMAT, b'id,"no\rte",note\r\n1,x,a\r\n')
    assert len(rows) == 1


def test_a_range_that_the_stream_does_not_have_is_no_empty_result(read: Any) -> None:
    with pytest.raises(EOFError):
        read(BARE, b"a,b,1\n", upper=20)


@pytest.mark.parametrize(
    ("head", "header", "ddl"),
    [
        (b"a,b,c,d,e\n1,x,true,,1.5\n2,,false,,1\n", True, "a long, b string, c boolean, d string, e double"),
        (b"\xef\xbb\xbfa,b\r\n1,2024-01-01 00:00:00\r\n", True, "a long, b string"),
        (b"1,x\n2,y\nz,,,", False, "_c0 long, _c1 string"),
        (b'a,b\n1,"x\ny"\nragged\n2,z\n', True, "a long, b string"),
        (b",b\n0,5\n", True, "b long"),
        (b"a\n99999999999999999999\n", True, "a double"),
    ],
)
def test_columns_are_inferred_from_complete_records(head: bytes, header: bool, ddl: str) -> None:
    assert Csv(header=header).infer(head) == parse_ddl(ddl)


@pytest.mark.parametrize("head", [b"", b"a,b\n", b"a,b\n1,2", b"\n\n", b'a\n"1\n2\n'])
def test_nothing_is_inferred_without_a_record(head: bytes) -> None:
    assert Csv().infer(head) is None


def test_a_format_is_a_value() -> None:
    fmt = Csv(SCHEMA, delimiter=";", null=("NA", ""))
    assert pickle.loads(pickle.dumps(fmt)) == fmt
    assert fmt.describe() == {
        "format": "csv",
        "schema": "id BIGINT, note STRING, gone STRING",
        "header": True,
        "delimiter": ";",
        "quote": '"',
        "null": ["NA", ""],
    }


@pytest.mark.parametrize(
    "wrong", [{"delimiter": ""}, {"delimiter": ",,"}, {"delimiter": "\n"}, {"quote": ","}, {"quote": "é"}]
)
def test_what_cannot_be_a_delimiter_or_a_quote_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(InvalidArgument):
        Csv(SCHEMA, **wrong)  # type: ignore[arg-type]


def test_a_nested_column_is_refused() -> None:
    with pytest.raises(UnsupportedType):
        Csv("a array<int>")


def test_converting_text_keeps_nulls_and_finds_each_bad_value() -> None:
    array, bad = from_text(pa.array(["1", None, "x", "3", "y"]), pa.int64())
    assert (array.to_pylist(), bad.tolist()) == ([1, None, None, 3, None], [False, False, True, False, True])
