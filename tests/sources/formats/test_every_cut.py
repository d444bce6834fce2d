"""Text does not depend on its cuts: not of a range, a block, a gzip member, a file's growth or a batch of messages.

What Arrow, or a reader of a text as a whole, does once for each text it is given must not show in ours: a byte order
mark is passed over at the beginning of a file and of a message, and is data everywhere else.
"""

from __future__ import annotations

import gzip
import io
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.depth import deep

import tidegauge as tg
from tidegauge.sources.formats.boundaries import Boundaries
from tidegauge.sources.formats.gzip import gunzip
from tidegauge.sources.formats.records import BOM

SPACE = [BOM, BOM[:1], BOM[1:], b"\0", b"\r", b"\n", b"\r\n", b" ", b"\xff\xfe"]
FIELDS = [*SPACE, b'"', b",", b"1", b"a", b'"a\r\n"', b'"' + BOM + b'"', b"1,2\n", b"a\n", BOM + b"1\n"]
OBJECTS = [*SPACE, b"{", b"}", b'{"a":"', b'"}', b'{"a":"\xef\xbb\xbfx","b":1}', b'{"b":1}\n', b'{"m":{"x":1}}', b"1"]
FORMATS: list[tuple[Any, list[bytes], bytes]] = [
    (tg.Csv("a string", header=False), FIELDS, b""),
    (tg.Csv("a string, b string", header=False), FIELDS, b""),
    (tg.Csv("a long, b boolean", header=False), FIELDS, b""),
    (tg.Csv("a string", header=False, quote=None), FIELDS, b""),
    (tg.Csv("a string, b long"), FIELDS, b"b,a\r\n"),
    (tg.Csv("a string"), FIELDS, b'\n\r\n"x\n","a"\n'),
    (tg.Json("a string, b long"), OBJECTS, b""),
    (tg.Json("m map<string,long>, a string"), OBJECTS, b""),
]
CASES = st.sampled_from(FORMATS).flatmap(
    lambda case: st.tuples(
        st.just(case[0]),
        st.sampled_from([b"", BOM]).map(lambda mark: mark + case[2]),
        st.lists(st.sampled_from(case[1]), max_size=9).map(b"".join),
    )
)
QUOTES = FORMATS[0][0]


def refused(text: bytes) -> bool:
    return text.startswith(b"\xff\xfe")


def boundaries(format: Any, header: bytes, text: bytes) -> list[int]:
    """Return where a file may be cut: at the ends of its records, but not in its header."""
    rule = Boundaries(quote=b'"' if isinstance(format, tg.Csv) and format.quote else None)
    first = len(header) if isinstance(format, tg.Csv) and format.has_header else 0
    return sorted({0, len(text), *(end for end in rule.ends(text).tolist() if end >= first)})


def merged(found: Any) -> list[Any]:
    return sorted([*found[0], *found[1]], key=lambda told: told[0])


@deep(250)
@given(CASES, st.sampled_from([{}, {"size": 1}, {"size": 5}]))
@example((QUOTES, b"", b"a\n" + BOM + b"b\n"), {}).via("found: a mark was stripped at the beginning of a piece")
@example((QUOTES, BOM, BOM), {"size": 1}).via("found: the same, of the second of two marks")
@example((FORMATS[4][0], BOM + b"b,a\r\n", BOM + b"x,1\n"), {})
def test_the_rows_of_a_range_are_those_of_its_records_one_by_one(
    read: Any, case: tuple[Any, bytes, bytes], sizes: dict[str, int]
) -> None:
    fmt, header, rest = case
    text = header + rest
    if refused(text):
        return
    cuts = boundaries(fmt, header, text)
    pieces = [read(fmt, text, lower=a, upper=b) for a, b in pairwise(cuts)]
    whole = read(fmt, text, **sizes)
    assert whole == ([row for rows, _ in pieces for row in rows], [told for _, bad in pieces for told in bad])
    for cut in cuts:
        first, second = read(fmt, text, upper=cut, **sizes), read(fmt, text, lower=cut, **sizes)
        assert whole == (first[0] + second[0], first[1] + second[1])


@deep(60)
@given(CASES, st.lists(st.integers(0, 60), max_size=3))
def test_a_compressed_file_is_the_text_in_it_wherever_its_members_end(
    read: Any, case: tuple[Any, bytes, bytes], cuts: list[int]
) -> None:
    fmt, header, rest = case
    text = header + rest
    if refused(text):
        return
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    members = [gzip.compress(text[a:b], 1, mtime=0) for a, b in pairwise(places)]
    with gunzip(io.BytesIO(b"".join(members))) as unpacked:
        bad: list[tuple[int, bytes]] = []
        found = fmt.decode(
            unpacked,
            lower=0,
            upper=None,
            header=fmt.header(io.BytesIO(text)),
            schema=fmt.schema,
            on_bad=lambda position, raw, _: bad.append((position, raw)),
        )
        rows = [
            told for part in found for told in zip(part.positions.to_pylist(), part.rows.to_pylist(), strict=True)
        ]
    assert (rows, bad) == read(fmt, text)


@deep(100)
@given(CASES)
def test_a_mark_at_the_beginning_of_a_file_is_no_data(read: Any, case: tuple[Any, bytes, bytes]) -> None:
    fmt, header, rest = case
    text = header.removeprefix(BOM) + rest
    if text.startswith(BOM) or refused(text):
        return
    rows, bad = read(fmt, text)
    assert read(fmt, BOM + text) == ([(p + 3, row) for p, row in rows], [(p + 3, raw) for p, raw in bad])


def test_a_mark_anywhere_else_is_data(read: Any) -> None:
    pair, numbers = tg.Csv("a string, b string", header=False), tg.Csv("a long", header=False)
    text = BOM + BOM + b"x,\n" + BOM + b"," + BOM + b'\n"' + BOM + b'",""\n'
    rows, bad = read(pair, text)
    assert [tuple(row.values()) for _, row in rows] == [("\ufeffx", None), ("\ufeff", "\ufeff"), ("\ufeff", "")]
    assert bad == []
    assert read(numbers, b"1\n" + BOM + b"2\n") == ([(0, {"a": 1})], [(2, BOM + b"2")])
    assert read(tg.Json("a long"), b'{"a":1}\n' + BOM + b'{"a":2}\n') == ([(0, {"a": 1})], [(8, BOM + b'{"a":2}')])
    assert read(tg.Csv("a string"), b"\n" + BOM + b"a,b,a\n1,2,3\n") == ([(10, {"a": "3"})], [])


@pytest.mark.parametrize("kind", [tg.Json("a string"), tg.Csv("a string", header=False), tg.Text()])
def test_a_mark_of_a_message_is_its_own(decode: Any, kind: Any) -> None:
    good = b'{"a": "x"}' if isinstance(kind, tg.Json) else b"x"
    values = [good, BOM + good, good, BOM + BOM + good, good + BOM, BOM]
    rows, bad = decode(kind, values)
    for i, value in enumerate(values):
        alone = decode(kind, [value])
        assert alone == ([(0, row) for j, row in rows if j == i], [(0, *told) for j, *told in bad if j == i])
