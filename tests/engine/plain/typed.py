"""Expressions of every type as texts, the rows that they are asked of, and what Spark says of them."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException

from tidegauge.engine.arrowtypes import arrow_schema
from tidegauge.engine.plain import chain
from tidegauge.job.functions import RowRefused
from tidegauge.job.plan import Select

DOUBLES = [None, math.nan, -math.inf, math.inf, -0.0, 0.0, 0.1, -3.0, 1e300, 5e-324, 9007199254740993.0, 3.0, 2.5e18]
INTEGERS = [None, 0, 1, -1, 2, 3, -7, (1 << 31) - 1, -(1 << 31), 46341, 65536]
FORMS = ["12", " -7\t", "+0003", "128", "2147483648", "-9223372036854775808", "9223372036854775808", "", "+",
         "1.5", "0x1", "1e3", "\u0661", "\u00a01", "\x7f3\x00", "true", " T ", "No", "y", "0",
         "1_000", "--1", "9" * 40]  # fmt: skip
TIMES = ["2024-02-29", "2023-02-29", " 2026-1-5 ", "2026-01-05T", "2026-01-05 x", "2026-01", "2026", "2026-",
         "26-01-01", "+2026-01-05", "-0001-03-01", "0000-02-29", "12026-01-01",
         "9999999-12-31", "2026-13-01", "2026-01-05x", "",
         "2026-001-01", "1500-02-29", "2026-01-5\n", "2026-01 T", "x"]  # fmt: skip
INSTANTS = [
    datetime(2024, 2, 29, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 1, tzinfo=UTC),
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(1582, 10, 10, 1, 2, 3, tzinfo=UTC),
    datetime(2026, 3, 29, 1, 30, tzinfo=UTC),
    datetime(9999, 12, 31, 23, tzinfo=UTC),
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(2021, 1, 3, tzinfo=UTC),
]
PLACES = [None, {"lat": 1.5, "deep": {"n": 3}}, {"lat": None, "deep": None}, {"lat": -0.0, "deep": {"n": None}}]
ODD = ["İ", "ΑΣ", "ﬃ", "\U00010d50", "\u019b"]
EDGES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "tiny": (pa.int8(), [None, -128, -1, 0, 3, 127]),
    "small": (pa.int16(), [None, -(1 << 15), (1 << 15) - 1, 0, -1, 181]),
    "n": (pa.int32(), INTEGERS),
    "m": (pa.int32(), INTEGERS),
    "big": (pa.int64(), [*INTEGERS, -(1 << 63), (1 << 63) - 1, (1 << 53) + 1, 3037000500]),
    "x": (pa.float64(), DOUBLES),
    "y": (pa.float64(), DOUBLES),
    "f": (pa.float32(), [None, math.nan, math.inf, -0.0, 0.0, 0.1, 3.0]),
    "flag": (pa.bool_(), [True, False, None]),
    "user": (
        pa.string(),
        [
            None,
            "",
            "a",
            "A",
            "ab",
            "a%",
            "é",
            "e\u0301",
            "\uffff",
            "😀",
            "3",
            "u\0",
            "ß",
            "aba",
            "a\nb",
            " a\t",
            "aaa",
        ],
    ),
    "other": (
        pa.string(),
        [None, "", "b", "ab", "É", "😀a", "a b ", "  ", "\u00a0", "😀😀", *ODD],
    ),
    "digits": (pa.string(), [None, *FORMS]),
    "when": (pa.string(), [None, *TIMES]),
    "at": (pa.timestamp("us", "UTC"), [None, *INSTANTS]),
    "place": (pa.struct([("lat", pa.float64()), ("deep", pa.struct([("n", pa.int32())]))]), PLACES),
    "money": (pa.decimal128(10, 2), [None, Decimal("3.00"), Decimal("-0.50")]),
    "day": (pa.date32(), [date(2024, 2, 29), None, date(1969, 12, 31), date(2026, 3, 30), date(9999, 12, 31)]),
}


def rows(seed: int, count: int = 40) -> pa.RecordBatch:
    """Return rows of edge values, drawn by a seed. Two doubles are the same in the first of them."""
    drawn = random.Random(seed)
    made = {name: drawn.choices(values, k=count) for name, (_, values) in EDGES.items()}
    made["x"][: len(DOUBLES)] = made["y"][: len(DOUBLES)] = DOUBLES
    return pa.record_batch({name: pa.array(values, EDGES[name][0]) for name, values in made.items()})


LEAVES: dict[str, list[str]] = {
    "whole": ["tiny", "small", "n", "m", "big", "n", "place.deep.n", "0", "1", "-1", "3", "2147483648", "`n`"],
    "double": ["x", "y", "x", "place.lat", "0.0", "1.5", "-2.0", "0", "3"],
    "text": ["user", "other", "user", "other", "'a'", "''", "'é'", "'ab'"],
    "day": ["day"],
    "instant": ["at"],
    "form": ["digits", "user"],
    "time": ["when"],
    "truth": ["flag", "n > 1", "x <= y", "user = 'a'", "m IS NULL", "n <> 0", "x <> 0", "m > 0"],
}
OF_ANY = [
    "if({truth}, {it}, {it})",
    "coalesce({it}, {it})",
    "nvl({it}, {it})",
    "nullif({it}, {it})",
    "CASE WHEN {truth} THEN {it} ELSE {it} END",
    "CASE WHEN {truth} THEN {it} when {truth} then {it} END",
    "case {it} WHEN {it} THEN {it} ELSE NULL END",
]
COMPARISONS = [
    f"{{{kind}}} {sign} {{{kind}}}"
    for kind in ("number", "double", "text", "day")
    for sign in ("=", "<>", "<", "<=", ">", ">=", "==")
]
MADE: dict[str, list[str]] = {
    "whole": [
        *(f"{{whole}} {sign} {{whole}}" for sign in "+-*%"),
        *(f"({{whole}} {sign} {{whole}})" for sign in "+-*%"),
        "- {whole}",
        "length({text})",
        *(f"{part}({{day}})" for part in ("year", "month", "day", "quarter", "dayofmonth", "dayofyear")),
        *(f"{part}({{instant}})" for part in ("year", "month", "day", "hour", "minute", "second")),
        "datediff({day}, {day})",
        *(f"{word}({{form}} AS {kind})" for word in ("cast", "try_cast") for kind in ("int", "BIGINT", "tinyint")),
        *(f"{word}({{whole}} AS {kind})" for word in ("cast", "try_cast") for kind in ("int", "BIGINT", "SMALLINT")),
        *(f"{word}({{double}} AS {kind})" for word in ("cast", "try_cast") for kind in ("int", "long")),
        "cast({truth} AS INT)",
        "character_length({text})",
        "mod({whole}, {whole})",
    ],
    "double": [
        *(f"{{number}} {sign} {{double}}" for sign in "+-*/%"),
        *(f"({{double}} {sign} {{number}})" for sign in "+-*/%"),
        "{whole} / {whole}",
        "cast({whole} AS double)",
        "cast({truth} AS double)",
        "-({double})",
    ],
    "text": [
        "trim({text})",
        "cast({whole} AS string)",
        "cast({truth} AS string)",
        "upper({text})",
        "lower({text})",
        "ucase({text} || 'x')",
        "ltrim({text})",
        "rtrim({text})",
        "{text} || {text}",
        "concat({text}, {text}, {text})",
        "concat({text})",
        "concat_ws('-', {text}, {text})",
        "concat_ws('', {text})",
        *(f"substring({{text}}, {at}, {size})" for at in (-3, -1, 0, 1, 2, 9) for size in (-1, 0, 1, 2, 100)),
        "substr({text}, 2)",
        "substring({text}, -2)",
        "substring({text}, -2147483648, 2147483647)",
        "substring({text}, 2147483647, 2147483647)",
        "replace({text}, 'a', '')",
        "replace({text}, 'aa', 'é')",
    ],
    "day": [
        "date_add({day}, 1)",
        "date_add({day}, -400)",
        "cast({instant} AS date)",
        "to_date({instant})",
        "to_date({time})",
        "try_cast({time} AS DATE)",
        "cast({time} AS date)",
    ],
    "instant": [
        f"date_trunc('{unit}', {{instant}})"
        for unit in ("DAY", "week", "MONTH", "year", "quarter", "hour", "minute", "second", "mm")
    ],
    "form": [],
    "time": [],
    "truth": [
        *COMPARISONS,
        "{truth} AND {truth}",
        "cast({whole} AS boolean)",
        "cast({double} AS boolean)",
        "cast({form} AS boolean)",
        "try_cast({form} AS boolean)",
        "{instant} < {instant}",
        "{truth} AND {number} > {number}",
        "{truth} OR {truth}",
        "({truth} OR {truth})",
        "NOT {truth}",
        "({truth})",
        "({truth}) = ({truth})",
        "{number} BETWEEN {number} AND {number}",
        "{whole} NOT IN (1, 3, -1)",
        "{text} IN ('a', 'ab', 'é')",
        "{text} IS NULL",
        "{number} IS NOT NULL",
        "({truth}) IS NULL",
        "{text} LIKE 'a%'",
        *(f"{{text}} LIKE '{pattern}'" for pattern in ("%a", "%a%", "_", "a_", "_%", "%_", "%_b", "", "__%", "a%b")),
        "startswith({text}, 'a')",
        "endswith({text}, '')",
        "endswith({text}, 'b')",
        "contains({text}, 'é')",
        "contains({text}, '')",
        "{text} LIKE 'é%'",
    ],
}


def text_of(drawn: random.Random, kind: str, depth: int) -> str:
    """Return an expression of some kind."""
    if kind == "number":
        kind = drawn.choice(["whole", "double"])
    if depth <= 0 or drawn.random() < 0.1:
        return drawn.choice(LEAVES[kind])
    template = drawn.choice(OF_ANY if not MADE[kind] or drawn.random() < 0.25 else MADE[kind])
    return re.sub(
        r"\{(\w+)\}", lambda hole: text_of(drawn, kind if hole[1] == "it" else hole[1], depth - 1), template
    )


def texts_of(seed: int, count: int) -> list[str]:
    """Return expressions of all kinds, drawn by a seed."""
    drawn = random.Random(seed)
    return [
        text_of(
            drawn, drawn.choice(["whole", "double", "text", "day", "truth", "instant"]), drawn.choice([1, 2, 2, 3])
        )
        for _ in range(count)
    ]


def each(seed: int) -> list[str]:
    """Return one expression of columns for each template."""
    drawn = random.Random(seed)
    known = {kind: [leaf for leaf in leaves if leaf.split(".")[0] in EDGES] for kind, leaves in LEAVES.items()}
    known["number"] = [*known["whole"], *known["double"]]
    return [
        re.sub(r"\{(\w+)\}", lambda hole: drawn.choice(known[hole[1]]), template)
        for templates in MADE.values()
        for template in templates
    ]


def spark_rows(session: Any, batch: pa.RecordBatch) -> Any:
    """Return the rows in UTC as they come from a task, so that Spark knows nothing of them before."""

    def same(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    beside = session.newSession()
    beside.conf.set("spark.sql.session.timeZone", "UTC")
    frame = beside.createDataFrame(pa.Table.from_batches([batch]))
    return frame.mapInArrow(same, frame.schema)


def shown(values: Any) -> list[Any]:
    """Return values for Python, which knows fewer days than Spark."""
    return list((values.cast(pa.int32()) if pa.types.is_date32(values.type) else values).to_pylist())


def mine(text: str, batch: pa.RecordBatch) -> tuple[pa.DataType, list[Any], dict[int, str]] | None:
    """Return the type, the value on each row, and what is said of each row that is refused. None: not understood."""
    made = chain([Select((f"{text} AS it",))], [["it"]], batch.schema)
    if made is None:
        return None
    refused: dict[int, str] = {}
    values: list[Any] = []
    kind = made.schema.field(0).type
    try:
        return kind, shown(made(batch).column(0)), {}
    except RowRefused:
        pass
    for row in range(batch.num_rows):
        try:
            values += shown(made(batch.slice(row, 1)).column(0))
        except RowRefused as error:
            values.append(None)
            refused[row] = str(error)
    kept = pa.array([row not in refused for row in range(batch.num_rows)])
    again = iter(shown(made(batch.filter(kept)).column(0)))
    together = [None if row in refused else next(again) for row in range(batch.num_rows)]
    assert repr(together) == repr(values), text
    return kind, values, refused


def check(session: Any, texts: Sequence[str], batch: pa.RecordBatch, *, raising: int) -> int:
    """Hold what is understood of the texts against Spark, and return how many are. raising: how many that raise are
    tried.
    """
    known = [(text, found) for text in dict.fromkeys(texts) if (found := mine(text, batch)) is not None]
    if not known:
        return 0
    asked = batch
    for number, (_, (_, _, refused)) in enumerate(known):
        asked = asked.append_column(f"ok{number}", pa.array([row not in refused for row in range(batch.num_rows)]))
    picks = [
        f"CASE WHEN ok{number} THEN struct(({text}\n) AS it) END AS c{number}"
        for number, (text, _) in enumerate(known)
    ]
    frame = spark_rows(session, asked).selectExpr(*picks)
    frame = frame.selectExpr(*(f"c{number}.it AS c{number}" for number in range(len(known))))
    kinds = [field.type for field in arrow_schema(frame.schema, where="Spark")]
    theirs = frame.toArrow()
    for number, (text, (kind, values, refused)) in enumerate(known):
        assert kind.equals(kinds[number]), f"{text} is of {kinds[number]}, not of {kind}"
        gave = shown(theirs.column(number))
        for row, (one, other) in enumerate(zip(values, gave, strict=True)):
            same = repr(one) == repr(other)
            assert same, f"{text} gives {other!r}, not {one!r}, of {batch.slice(row, 1).to_pylist()}"
        if refused and raising:
            raising -= 1
            row = min(refused)
            said, given = _said(spark_rows(session, batch.slice(row, 1)), text), batch.slice(row, 1).to_pylist()
            assert said == _class(refused[row]), f"{text} says {said}, not {refused[row]}, of {given}"
    return len(known)


def _said(frame: Any, text: str) -> str | None:
    """Return the class of the error that Spark raises for an expression on a row, as it is asked in a pass."""
    try:
        frame.selectExpr(f"CASE WHEN rand() >= 0 THEN struct(({text}\n) AS it) END").toArrow()
    except PySparkException as error:
        return _class(str(error))
    return None


def _class(message: str) -> str | None:
    found = re.search(r"\[([A-Z_]+)(?:\.[A-Z_]+)?\]", message)
    return found[1] if found else None
