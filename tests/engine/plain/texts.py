"""Texts of SQL, understood and not, and the values that they are asked of."""

from __future__ import annotations

import math
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck
from hypothesis import strategies as st

from tidegauge.engine.plain import KeptRows, Prefilter, understood

COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "tiny": (pa.int8(), [None, -128, -1, 0, 3, 127]),
    "n": (pa.int32(), [3, None, 0, -(1 << 31), 2, (1 << 31) - 1, 4]),
    "big": (pa.int64(), [None, -(1 << 63), (1 << 63) - 1, 0, 3, (1 << 53) + 1, 1 << 31, -(1 << 31) - 1]),
    "x": (
        pa.float64(),
        [None, math.nan, -math.inf, math.inf, -0.0, 0.0, 0.1, math.nextafter(0.1, 1), 900.5, 9007199254740992.0, 3.0],
    ),
    "f": (
        pa.float32(),
        [None, math.nan, math.inf, -math.inf, -0.0, 0.0, 0.1, 0.5, 3.0, 16777216.0, 900.5, -3.0, 2.0],
    ),
    "user": (
        pa.string(),
        [None, "", "a", "A", "ab", "a%", "a_b", "café", "é", "\uffff", "😀", "a\nb", "3", "true", "u\0"],
    ),
    "flag": (pa.bool_(), [True, False, None]),
    "money": (pa.decimal128(10, 2), [None, Decimal("3.00"), Decimal("-0.50")]),
    "day": (pa.date32(), [date(2026, 3, 29), None, date(1969, 12, 31), date(2026, 3, 30), date(9999, 1, 1)]),
    "a b.c": (pa.int64(), [1, None, 3]),
}
SIZE = 72
DATA = pa.record_batch(
    {name: pa.array([values[i % len(values)] for i in range(SIZE)], kind) for name, (kind, values) in COLUMNS.items()}
)


def rows_kept(batch: pa.RecordBatch, *conditions: str) -> tuple[list[int], bool] | None:
    """Return the rows that a chain of filters lets pass, and whether it is understood wholly; None if not at all."""
    found = understood(conditions, batch.schema)
    if found is None:
        return None
    numbered = batch.append_column("row", pa.array(range(batch.num_rows), pa.int64()))
    prefilter = Prefilter((KeptRows(found[0], closed=found[1]),))
    return prefilter(numbered)["row"].to_pylist(), found[1]


WHOLE_NUMBERS = ["0", "3", "-1", "- 3", "300", "007", "2147483647", "2147483648", "-9223372036854775808",
                 "9223372036854775807", "9223372036854775808", "9007199254740993"]  # fmt: skip
DECIMALS = ["0.1", "-0.0", "3.0", "900.5", "0.10000000000000002", "1.5"]
TEXTS = ["'a'", "''", "'a%'", "'a_b'", "'café'", "'é'", "'😀'", "'\uffff'", "'3'", "'u'", "'or'", "'--'", "'it''s'",
         r"'a\nb'", "'a\nb'"]  # fmt: skip
SIGNS = ["=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>"]
PATTERNS = ["'a%'", "'%'", "'a'", "'😀%'", "'a_b'", "'a%b'", r"'a\%'", "'é%'", "'a\n%'"]
JUNK = [
    "1 / (n - 3) > 0", "n + 2147483647 > 0", "cast(user AS int) > 0", "user > 3", "user = true",
    "try_cast(user AS int) IS NULL", "n % 2 = 0", "-n > 3", "x > n", "n > 1.5", "n = 3.0", "upper(user) = 'A'",
    "user RLIKE 'a'", "user COLLATE UTF8_LCASE = 'A'", 'user = "a"', "n > 1L", "x < 1e2", "x = 'NaN'",
    "x > double('NaN')", "money > 1", "day > date'2026-03-29'", "day > '2026-01-01'",
    "CASE WHEN flag AND n > 3 THEN false ELSE true END", "n = 3 /* OR */", "n = 3 -- OR\n", "flag IS NOT TRUE",
    "n IN (3, NULL)", "n = NULL", "NULL", "! flag", "n BETWEEN 0 AND 4 + tiny", "n IS NOT DISTINCT FROM 3",
    "flag = (n > 3)", "N > 2", "user = 'a' 'b'", "user LIKE 'a/_%' ESCAPE '/'", "user || 'x' > 'b'", "r'a' = user",
    "n > 2 = flag", "(n, tiny) = (3, 3)", "n > -(-3)", "n - 3 > 0", "user LIKE ANY ('a%', 'é%')", "true",
    "flag = NOT flag", "exists(array(n), e -> e > 2)", "(n) > 2", "n!=3",
]  # fmt: skip


def comparisons() -> st.SearchStrategy[str]:
    numbers = st.sampled_from(["tiny", "n", "big", "`n`", "`a b.c`"]), st.sampled_from(WHOLE_NUMBERS)
    floats = st.sampled_from(["x", "f", "`x`"]), st.sampled_from([*WHOLE_NUMBERS, *DECIMALS])
    texts = st.just("user"), st.sampled_from(TEXTS)
    flags = st.just("flag"), st.sampled_from(["true", "FALSE"])
    negated = st.sampled_from(["", "NOT "])
    kinds = []
    for column, literal in (numbers, floats, texts, flags):
        kinds += [
            st.builds("{} {} {}".format, column, st.sampled_from(SIGNS), literal),
            st.builds("{}{}{}".format, literal, st.sampled_from(SIGNS), column),
            st.builds("{} {}between {}\tAND {}".format, column, negated, literal, literal),
            st.builds(
                lambda column, negated, literals: f"{column} {negated}IN ({', '.join(literals)})",
                column,
                negated,
                st.lists(literal, min_size=1, max_size=12),
            ),
        ]
    likes = st.builds("user {}LIKE {}".format, negated, st.sampled_from(PATTERNS))
    nulls = st.builds("{} is {}null".format, st.sampled_from(["n", "x", "user", "flag", "money", "day"]), negated)
    return st.one_of(*kinds, likes, nulls, st.just("flag"))


def _joined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    joint = st.sampled_from([" AND ", "\nand ", " OR ", " or\n"])
    return st.one_of(
        st.builds("{}{}{}".format, inner, joint, inner),
        st.builds("{}{}{}{}{}".format, inner, joint, inner, joint, inner),
        st.builds("({})".format, inner),
        st.builds("NOT {}".format, inner),
    )


def conditions(atoms: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.recursive(atoms, _joined, max_leaves=6)


PLAIN = conditions(comparisons())
ANY = conditions(st.one_of(comparisons(), comparisons(), st.sampled_from(JUNK)))
BEGUN = st.builds("{} AND {}".format, PLAIN, ANY)
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
CHAIN = st.lists(st.one_of(PLAIN, BEGUN, ANY), min_size=1, max_size=2)
