"""A Hypothesis strategy for small flows over edge values, of every step that a stream has.

Invariant: what a step names is there in most flows, so that most outputs have rows. In some a name or a type is
wrong, or a row cannot be taken, and every engine has to say so.

The columns that a stream has are followed from step to step, by kind: `whole`, `text`, ... as in `plain.typed`,
whose expressions are drawn here too.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from hypothesis import strategies as st
from tests.engine.drawn.described import UNLUCKY, Called, Described, Output
from tests.engine.plain import typed

Kinds: TypeAlias = dict[str, str]
"""The columns of a stream, by name."""

OF_SOURCE: Final[Mapping[str, Kinds]] = {
    "a": {"id": "whole", "n": "whole", "x": "double", "user": "text", "at": "instant", "day": "day", "flag": "truth",
          "tags": "texts", "items": "items", "place": "place", "money": "money"},
    "b": {"id": "whole", "user": "text", "till": "whole", "wall": "wall", "tags": "texts"},
}  # fmt: skip
BOTH: Final[Kinds] = {**OF_SOURCE["a"], **OF_SOURCE["b"], "_source": "text"}

_LONG: Final = (1 << 63) - 1
_IDS: Final = [*range(8), UNLUCKY, None, _LONG, -_LONG - 1, (1 << 53) + 1, 1, 2]
_TEXTS: Final = [None, "", "a", "A", "ab", "é", "e\u0301", "😀", "\uffff", "u\0", " a\t", "12", "a\nb", "a", "ab"]
_TAGS: Final = [None, [], ["a"], ["b", "a", "a"], [None], ["", "x", None], ["😀"]]
VALUES: Final[Mapping[str, list[Any]]] = {
    "id": _IDS,
    "n": [None, 0, 1, 2, 3, -1, (1 << 31) - 1, -(1 << 31)],
    "x": [None, float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 0.1, 1e300, 5e-324, 3, 2.5],
    "user": _TEXTS,
    # before and in the hours that clocks go over, in Berlin and in New York, where the session of the tests is
    "at": [None, "2026-03-29T00:59:59.999999Z", "2026-03-29T01:30:00Z", "2026-10-25T02:30:00+02:00",
           "2026-10-25T02:30:00+01:00", "2026-03-08T07:00:00Z", "2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z",
           "1883-11-18T17:00:00Z", "1969-12-31T23:59:59.000001Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"],
    "day": [None, "2026-03-29", "1582-10-10", "0001-01-01", "9999-12-31", "2024-02-29", "1969-12-31"],
    "flag": [None, True, False],
    "tags": _TAGS,
    "items": [None, [], [{"sku": "pen", "n": 2}, {"sku": "", "n": None}], [None, {"n": -_LONG - 1}], [{}]],
    "place": [None, {}, {"lat": 1.5, "deep": {"n": 3}}, {"lat": -0.0, "deep": None}, {"deep": {"n": None}}],
    "money": [None, "0.00", "99999999.99", "-0.50", "3"],
    "till": [None, 0, 1, 2, -1],
    "wall": [None, "2026-03-29T02:30:00", "2026-03-08T02:30:00", "2026-11-01T01:30:00", "1969-12-31T23:59:59.5"],
}  # fmt: skip

FALLIBLE: Final = re.compile(r"(?i) [-+*/%] |(?<!try_)cast\(|mod\(|to_date\(\{time|date_add|^- |^-\(")
SURE: Final = {kind: [text for text in texts if not FALLIBLE.search(text)] for kind, texts in typed.MADE.items()}
MAY_FAIL: Final = {"whole": ["{whole} + 1", "100 / {whole}", "{whole} * {whole}", "cast({text} AS INT)"],
                   "double": ["1 / {double}", "{double} * 2.0", "100 / {whole}"],
                   "text": ["cast({whole} AS string)"], "day": ["date_add({day}, 1)", "cast({text} AS date)"],
                   "truth": ["{whole} + 1 > 0", "10 / {whole} > 3.0", "cast({text} AS boolean)"]}  # fmt: skip
LISTED: Final = {  # on the list of Sail
    "whole": ["size({texts})", "hash({text}, {whole})", "octet_length({text})", "dayofweek({day})"],
    "text": ["md5({text})", "soundex({text})", "reverse({text})", "array_join({texts}, '-')", "dayname({day})"],
    "texts": ["sort_array({texts})", "array_distinct({texts})", "split({text}, 'a')"],
    "day": ["last_day({day})"],
    "truth": ["size({texts}) > 0", "soundex({text}) <> 'A000'", "md5({text}) > 'a'", "reverse({text}) = {text}"],
}
SPARK: Final = {
    "whole": ["{whole} & 1", "size({texts}) + 1", "abs({whole})", "cast({money} AS int)", "{place}.deep.n + 1"],
    "double": ["round({double}, 1)", "{place}.lat * 2"],
    "text": ["to_json({place})", "date_format({instant}, 'yyyy-MM-dd HH')", "regexp_replace({text}, 'a', 'b')",
             "cast({instant} AS string)", "cast({wall} AS string)", "initcap({text})"],
    "money": ["{money} * 2", "coalesce({money}, 0)"],
    "truth": ["{whole} & 1 = 0", "exists({texts}, tag -> tag = 'a')", "{text} RLIKE '^a'", "{money} > 1",
              "{instant} >= '2026-03-29'", "{place}.lat > 1"],
}  # fmt: skip
Pools: TypeAlias = Sequence[Mapping[str, Sequence[str]]]
POOLS: Final[Mapping[str, Pools]] = {
    "plain": [SURE, SURE, SURE, MAY_FAIL],
    "sail": [SURE, LISTED, LISTED],
    "spark": [SURE, LISTED, SPARK, MAY_FAIL],
    "failing": [SURE],
}
_FORMS: Final = ["plain", "plain", "sail", "spark", "spark", "failing"]
_FAILING: Final[list[Called]] = [
    ("map_batches", "raising"), ("map_batches", "wrong"), ("select", "*", "100 / (id - 2) AS e0"),
    ("filter", "id + 1 > 0"), ("select", "*", "cast(user AS int) AS e0"), ("select", "*", "size(tags) * id AS e0"),
]  # fmt: skip
_PICKED: Final = ["whole", "text", "double", "day", "truth", "texts", "money"]
BAD: Final = ['{"id": "x"}', "{", '{"id": 1, "id": 2}']
_LITERALS: Final = {
    "whole": ["0", "1", "3"], "double": ["0.5D", "1.5D"], "text": ["'a'", "''"], "truth": ["true", "1 = 1"],
    "number": ["1", "2"], "form": ["'12'"], "time": ["'2026-03-29'"],
}  # fmt: skip
_HOLE: Final = re.compile(r"\{(\w+)\}")
_SINKS: Final = ["parquet", "delta", "memory"]
_KEYS: Final = ("whole", "text", "instant", "day", "truth", "money")


def of_kinds(columns: Kinds, *kinds: str) -> list[str]:
    """Return the columns of some kinds."""
    return [name for name, kind in columns.items() if kind in kinds]


@st.composite
def described(draw: st.DrawFn, *, least: int = 3, most: int = 5) -> Described:
    """Flows of one source or of two and their union, with so many outputs, and with an epoch or several."""
    two, bad = draw(st.booleans()), draw(st.integers(0, 4)) == 4
    sizes = st.lists(st.integers(3, 9), min_size=1, max_size=2)
    files = {
        name: tuple(lines(draw(st.integers(0, 1 << 16)), name, size, bad=bad and name == "a") for size in draw(sizes))
        for name in (("a", "b") if two else ("a",))
    }
    largest = max(sum(len(line.encode()) + 1 for line in file) for of in files.values() for file in of)
    size = max(200, largest // draw(st.integers(1, 3)))
    places = ["a", "a", "both", "b"] if two else ["a"]
    forms = st.lists(st.sampled_from(_FORMS), min_size=least, max_size=most)
    outputs = [draw(_outputs(draw(st.sampled_from(places)), form)) for form in draw(forms)]
    if bad:
        outputs += [Output(f"{source}.errors", (), "parquet") for source in (("a", "both") if two else ("a",))]
    return Described(files, size, tuple(outputs))


def lines(number: int, name: str, count: int, *, bad: bool) -> tuple[str, ...]:
    """Return lines of a source, some without their nulls. They are drawn by a number: a flow has a hundred values."""
    drawn = random.Random(number)
    found = []
    for _ in range(count):
        row = {column: drawn.choice(VALUES[column]) for column in OF_SOURCE[name]}
        some = row if drawn.random() < 0.5 else {key: value for key, value in row.items() if value is not None}
        found.append(drawn.choice(BAD) if bad and drawn.random() < 0.2 else json.dumps(some))
    return tuple(found)


@st.composite
def _outputs(draw: st.DrawFn, source: str, form: str) -> Output:
    """Outputs whose SQL is plain, or needs Sail or Spark; or which fail at a row, if there is such a one."""
    columns = dict(BOTH if source == "both" else OF_SOURCE[source])
    steps: list[Called] = []
    if form == "failing":
        steps.append(draw(st.sampled_from(_FAILING)))
    for _ in range(draw(st.integers(0, 4))):
        word = draw(st.sampled_from(_DRAWN[: None if form == "spark" else -2]))
        step, columns = draw(_STEPS[word](columns, POOLS[form]))
        steps += step
    if (keys := of_kinds(columns, "whole", "text")) and draw(st.integers(0, 5)) == 5:
        key = draw(st.sampled_from(keys))
        once: list[Called] = [("filter", f"{key} IS NOT NULL"), ("dedupe", key)]
        return Output(source, (*steps, *(once if draw(st.integers(0, 2)) else [])), f"upsert {key}")
    return Output(source, tuple(steps), draw(st.sampled_from(_SINKS)))


@st.composite
def texts(draw: st.DrawFn, columns: Kinds, kind: str, pools: Pools) -> str:
    """Expressions of a kind over columns."""
    known = [text for text in draw(st.sampled_from(pools)).get(kind, []) if _can_be(text, columns)]
    text = draw(st.sampled_from(known or [f"{{{kind}}}"]))
    holes = _HOLE.findall(text)
    for hole in holes:
        text = text.replace(f"{{{hole}}}", draw(_leaves(columns, kind if hole == "it" else hole)), 1)
    return text


def _can_be(text: str, columns: Kinds) -> bool:
    return all(hole in _LITERALS or hole == "it" or hole in columns.values() for hole in _HOLE.findall(text))


def _leaves(columns: Kinds, kind: str) -> st.SearchStrategy[str]:
    kinds = {"number": ("whole", "double"), "form": ("text",), "time": ("text",)}.get(kind, (kind,))
    found = of_kinds(columns, *kinds)
    return st.sampled_from([*found, *found, *_LITERALS.get(kind, [])] or ["NULL"])


@st.composite
def _filters(draw: st.DrawFn, columns: Kinds, pools: Pools) -> tuple[list[Called], Kinds]:
    """Conditions of columns: for one that is false of whatever row, Spark leaves out the steps before it."""
    text = draw(texts(columns, "truth", pools))
    return ([("filter", text)] if set(re.findall(r"\w+", text)) & columns.keys() else []), columns


@st.composite
def _selects(draw: st.DrawFn, columns: Kinds, pools: Pools) -> tuple[list[Called], Kinds]:
    kept = [name for name in columns if draw(st.integers(0, 3))] or list(columns)
    star = draw(st.booleans())
    picks, found = (["*"], dict(columns)) if star else (kept, {name: columns[name] for name in kept})
    for kind in draw(st.lists(st.sampled_from(_PICKED), max_size=2)):
        name = next(f"e{number}" for number in range(99) if f"e{number}" not in {*columns, *found})
        text = draw(texts(columns, kind, pools))
        if text != "NULL":
            picks, found = [*picks, f"{text} AS {name}"], {**found, name: kind}
    if draw(st.integers(0, 24)) == 24:
        picks = [*picks, "nothing"]
    return [("select", *picks)], found


@st.composite
def _maps(draw: st.DrawFn, columns: Kinds, _pools: Pools) -> tuple[list[Called], Kinds]:
    names = ["as_it_is", "marked", "twice", "present", "backwards"]
    names += ["raising", "wrong"] if next(iter(columns)) == "id" else []
    name = draw(st.sampled_from(names))
    if name == "marked" and "none" in columns and draw(st.integers(0, 3)):
        name = "present"
    found = {"marked": {**columns, "none": "truth"}, "backwards": dict(reversed(columns.items()))}
    return [("map_batches", name)], found.get(name, columns)


@st.composite
def _keys(draw: st.DrawFn, columns: Kinds) -> tuple[str, ...]:
    names = of_kinds(columns, *_KEYS)
    if not names or draw(st.integers(0, 24)) == 24:
        names = list(columns)
    return tuple(draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True)))


@st.composite
def _dedupes(draw: st.DrawFn, columns: Kinds, _pools: Pools) -> tuple[list[Called], Kinds]:
    return [("dedupe", *draw(_keys(columns)))], columns


@st.composite
def _partitions(draw: st.DrawFn, columns: Kinds, _pools: Pools) -> tuple[list[Called], Kinds]:
    parts = draw(st.integers(2, 3))
    return [("partition", parts, *draw(_keys(columns)), draw(st.integers(0, parts - 1)))], columns


@st.composite
def _splits(draw: st.DrawFn, columns: Kinds, _pools: Pools) -> tuple[list[Called], Kinds]:
    names = of_kinds(columns, "whole", "text")
    if not names:
        return [], columns
    name = draw(st.sampled_from(names))
    values: Sequence[Any] = (1, 2, 3) if columns[name] == "whole" else ("a", "ab", "")
    if draw(st.integers(0, 24)) == 24:
        values = (1 << 40,)
    return [("split_by", name, tuple(values), draw(st.sampled_from([*values, None])))], columns


@st.composite
def _unnests(draw: st.DrawFn, columns: Kinds, _pools: Pools) -> tuple[list[Called], Kinds]:
    lists = {"texts": "text", "items": "item"}
    names = of_kinds(columns, *lists)
    if not names and draw(st.integers(0, 9)):
        return [], columns
    name = draw(st.sampled_from(names or list(columns)))
    return [("unnest", name)], {**columns, name: lists.get(columns[name], columns[name])}


@st.composite
def _frames(draw: st.DrawFn, columns: Kinds, _pools: Pools) -> tuple[list[Called], Kinds]:
    if "user" not in columns:
        return [], columns
    name = draw(st.sampled_from(["as_it_is", "as_it_is", "counted", "known", "known", "unready"]))
    return [("transform", name)], {"user": "text", "count": "whole"} if name == "counted" else columns


_STEPS: Final = {
    "filter": _filters, "select": _selects, "map_batches": _maps, "dedupe": _dedupes, "partition": _partitions,
    "split_by": _splits, "unnest": _unnests, "transform": _frames,
}  # fmt: skip
WORDS: Final = tuple(_STEPS)
"""The names of the steps."""
_DRAWN: Final = ["filter", "select", "select", "map_batches", *_STEPS, "transform"]
