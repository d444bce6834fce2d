"""JSON: what is declared is there once or the record is bad; what is not declared may hold anything that is JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.depth import deep

import tidegauge as tg
from tidegauge.sources.formats.records import BLOCK_RECORDS

COLUMNS = "a long, t string, s struct<x:long,l:array<struct<y:string>>>"
"""These are read as they stand; beside a map, each line is taken apart first."""
PLAIN, MAPPED = tg.Json(COLUMNS), tg.Json(f"{COLUMNS}, m map<string,struct<x:long>>")

HALVES = ['"\\ud800"', '"\\udc00\\ud800"', '"\\ud83d\\ude00"']
LARGE = ["1e400", "-1E+99999", "[1e999]", "9" * 400, "9" * 5000, "NaN"]
NAMES = ["a", "t", "s", "m", "x", "l", "y", "\\u0061", "\\ud800", "other"]
LEAVES = st.sampled_from([*HALVES, *LARGE, "1", "null", '"x"', "2.5", "{}", "[]"])


def objects(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    members = st.lists(st.tuples(st.sampled_from(NAMES), values), max_size=4)
    return members.map(lambda pairs: "{" + ",".join(f'"{name}":{value}' for name, value in pairs) + "}")


VALUES = st.recursive(
    LEAVES, lambda inner: objects(inner) | st.lists(inner, max_size=2).map(lambda v: f"[{','.join(v)}]")
)
SOUND = {
    "a": LEAVES,
    "t": LEAVES,
    "s": objects(LEAVES).map(lambda text: text.replace('"l":[]', '"l":[{"y":"1"},{"y":null,"other":1e400}]')),
    "m": objects(objects(LEAVES)),
    "other": VALUES,
}
LINES = st.lists(
    st.sampled_from(list(SOUND)).flatmap(lambda name: SOUND[name].map(lambda value: f'"{name}":{value}')), max_size=4
).map(lambda members: "{" + ",".join(members) + "}")


class Bad(Exception):
    pass


class Members(list[tuple[str, Any]]):
    pass


def long(value: Any) -> int | None:
    if value is not None and value != "#1":
        raise Bad
    return None if value is None else 1


def string(value: Any) -> str | None:
    if value is not None and (not isinstance(value, str) or value.startswith("#")):
        raise Bad
    if value is not None and any("\ud800" <= c <= "\udfff" for c in value):
        raise Bad
    return None if value is None else value


def struct(value: Any, **fields: Any) -> dict[str, Any] | None:
    if value is None:
        return None
    if not isinstance(value, Members):
        raise Bad
    found: dict[str, Any] = {}
    for name, inner in value:
        if name in found:
            raise Bad
        if name in fields:
            found[name] = fields[name](inner)
    return {name: found.get(name) for name in fields}


def array(value: Any) -> list[Any] | None:
    if value is not None and (not isinstance(value, list) or isinstance(value, Members)):
        raise Bad
    return None if value is None else [struct(item, y=string) for item in value]


def entries(value: Any) -> list[tuple[str, Any]] | None:
    if value is None:
        return None
    if not isinstance(value, Members) or len({name for name, _ in value}) < len(value):
        raise Bad
    return [(string(name) or "", struct(inner, x=long)) for name, inner in value]


def expected(line: str, *, mapped: bool) -> dict[str, Any] | None:
    """Read a line by the rule, a number as its text after a #; None when it is bad."""
    parsed = json.loads(
        line, object_pairs_hook=Members, parse_int="#{}".format, parse_float="#{}".format, parse_constant="#{}".format
    )
    fields: dict[str, Any] = {"a": long, "t": string, "s": lambda value: struct(value, x=long, l=array)}
    try:
        return struct(parsed, **fields, **({"m": entries} if mapped else {}))
    except Bad:
        return None


@deep(200)
@given(st.lists(LINES, min_size=1, max_size=5))
@example(['{"m":{},"m":{"k":{"x":1}}}']).via("found: the first was lost")
@example(['{"a":1,"other":"\\ud800"}']).via("found: a bad record, and so is the next")
@example(['{"a":1,"other":1e400}', '{"a":1}'])
@example(['{"m":{"k":null,"k":null}}'])
@example(['{"a":1,"other":"\\\\ud83d\\ude00"}']).via("half a pair behind what only looks like the other half")
def test_the_rule_is_the_same_however_a_line_is_read(read: Any, decode: Any, lines: list[str]) -> None:
    for fmt, mapped in ((PLAIN, False), (MAPPED, True)):
        rows = [expected(line, mapped=mapped) for line in lines]
        text = "".join(f"{line}\n" for line in lines).encode()
        found, bad = read(fmt, text)
        assert [row for _, row in found] == [row for row in rows if row is not None]
        assert [raw.decode() for _, raw in bad] == [
            line for line, row in zip(lines, rows, strict=True) if row is None
        ]
        assert decode(fmt, text.splitlines())[0] == [(i, row) for i, row in enumerate(rows) if row is not None]


@pytest.mark.parametrize(
    ("ddl", "line", "problem"),
    [
        ("a long", '{"a":1,"a":1}', "column a: it is there twice"),
        ("s struct<x:int>", '{"s":{"x":1,"x":2}}', "column s/x: it is there twice"),
        ("m map<string,long>", '{"m":{"k":1},"m":{}}', "column m: it is there twice"),
        ("m map<string,long>", '{"m":{"k":1,"\\u006b":2}}', "column m: the key 'k' is there twice"),
        ("m map<string,long>", '{"m":[{"key":"k","value":1}]}', "column m: expected an object, found an array"),
        ("s struct<m:map<string,long>>", '{"s":{"m":[]}}', "column s.m: expected an object, found an array"),
    ],
)
def test_what_is_wrong_is_said(decode: Any, ddl: str, line: str, problem: str) -> None:
    assert decode(tg.Json(ddl), [line.encode()]) == ([], [(0, "TG-0323", problem)])


@pytest.mark.parametrize(
    "ddl", ["a double", "a float", "a array<double>", "a map<string,float>", "a struct<x:double>"]
)
def test_a_number_too_big_is_not_infinite_because_something_else_is(decode: Any, ddl: str) -> None:
    big, text = "9" * 400, "Infinity"
    for value, good in ((big, False), (text, True), (f"-{text}", True)):
        of = f"[{value}]" if "array" in ddl else f'{{"x":{value}}}' if "<" in ddl else value
        rows, bad = decode(tg.Json(ddl), [f'{{"a":{of},"other":["Inf",{text}]}}'.encode()])
        assert (len(rows), len(bad)) == (int(good), int(not good))


def test_many_lines_with_such_members_do_not_cost_a_reading_each(
    decode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidegauge.sources.formats import json as module

    readings: list[int] = []
    columns = module._columns

    def counted(text: memoryview, schema: Any, *, rows: int) -> Any:
        readings.append(rows)
        return columns(text, schema, rows=rows)

    monkeypatch.setattr(module, "_columns", counted)
    values = [b'{"a":%d,"other":"\\ud800"}' % i for i in range(2000)]
    assert len(values) < BLOCK_RECORDS
    rows, bad = decode(tg.Json("a long"), values)
    assert ([row["a"] for _, row in rows], bad) == (list(range(2000)), [])
    assert readings == [2000, 2000]
