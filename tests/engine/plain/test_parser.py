"""What is understood of SQL, and that all else is no error."""

from __future__ import annotations

import math
from datetime import date

import pyarrow as pa
import pytest
from tests.engine.plain.texts import rows_kept

from tidegauge.engine.plain import projected, understood
from tidegauge.engine.plain.expressions import Arithmetic, Column

ORDERS = pa.record_batch(
    {
        "n": pa.array([0, 1, 2, None, 4], pa.int32()),
        "x": pa.array([0.5, math.nan, None, -0.0, math.inf]),
        "f": pa.array([0.5, math.nan, None, -0.0, 0.1], pa.float32()),
        "user": pa.array(["a", "ab", None, "", "b"]),
        "flag": pa.array([True, None, False, True, False]),
        "day": pa.array([None, date(2026, 1, 1), None, None, None]),
        "odd `name`": pa.array([1, 2, 3, 4, 5]),
        "and": pa.array([1, 2, 3, 4, 5]),
    }
)


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ("n > 1", [2, 4]),
        ("1 < n", [2, 4]),
        ("n >= 2147483648", []),
        ("NOT (n > 1)", [0, 1]),
        ("NOT n = 1 AND flag", [0]),
        ("flag OR n = 4 AND x > 3", [0, 3, 4]),
        ("(flag OR n = 4) AND x > 3", [4]),
        ("flag", [0, 3]),
        ("flag <> true", [2, 4]),
        ("x > 0", [0, 1, 4]),
        ("x >= 0", [0, 1, 3, 4]),
        ("x < 1", [0, 3]),
        ("x <= 0.5", [0, 3]),
        ("NOT x > 0", [3]),
        ("x = 0", [3]),
        ("x <> 0", [0, 1, 4]),
        ("x BETWEEN 0 AND 1", [0, 3]),
        ("f >= 0.5", [0, 1]),
        ("n NOT BETWEEN 1 AND 3", [0, 4]),
        ("n IN (1, 4, 99999999999)", [1, 4]),
        ("n NOT IN (1, 4)", [0, 2]),
        ("user IN ('a', '')", [0, 3]),
        ("user LIKE 'a%'", [0, 1]),
        ("user NOT LIKE 'a%'", [3, 4]),
        ("user LIKE 'a'", [0]),
        ("user >= 'ab'", [1, 4]),
        ("day IS NULL", [0, 2, 3, 4]),
        ("`day` IS NOT NULL", [1]),
        ("`and` = 3", [2]),
        ("n is null\nOr n = 0", [0, 3]),
    ],
)
def test_plain_comparisons_are_understood_wholly(condition: str, rows: list[int]) -> None:
    assert rows_kept(ORDERS, condition) == (rows, True)


@pytest.mark.parametrize(
    ("chain", "rows"),
    [
        (["n > 1 AND upper(user) = 'B'"], [2, 3, 4]),
        (["n > 1", "upper(user) = 'B'"], [2, 3, 4]),
        (["n > 1", "user = 'b' AND 1 / n > 0"], [2, 4]),
        (["n > 1 AND upper(color) = 'B'"], [2, 3, 4]),
        (["n BETWEEN 1 AND 3 AND 1 / n > 0"], [1, 2, 3]),
    ],
)
def test_a_conjunction_is_understood_up_to_what_is_not_and_its_nulls_stay(chain: list[str], rows: list[int]) -> None:
    assert rows_kept(ORDERS, *chain) == (rows, False)


@pytest.mark.parametrize(
    "condition",
    [
        "upper(user) = 'B' AND n > 1",
        "n > 1 OR upper(user) = 'B'",
        "n > 1 AND upper(user) = 'B' OR flag",
        "n > 1 AND x /* OR */ > n",
        "NOT (n > 1 AND upper(user) = 'B')",
        "NOT upper(user) = 'B' AND n > 1",
        "(n > 1 AND upper(user) = 'B')",
        "(n > 1 AND upper(user) = 'B') OR n > 2",
        "n BETWEEN 1 AND n",
        "n > 1 + 1",
        "n - 1 > 1",
        "n > 1 = flag",
        "n > 1 -- AND flag",
        "n > --\n1",
        "n > /**/ 1",
        "n <=> 1",
        "! flag",
        "n",
        "N > 1",
        "orders.n > 1",
        "missing > 1",
        "`odd ``name``` > 1",
        "and = 3",
        "n > '1'",
        "n > 1.0",
        "n > 9223372036854775808",
        "n > 1L",
        "x > 1e3",
        "x > 9007199254740993",
        "x IN (0)",
        "f = 0.1",
        "x = 'NaN'",
        "user > 1",
        'user = "a"',
        "user = 'it''s'",
        r"user = 'a\tb'",
        "user = r'a'",
        "user = 'a' 'b'",
        "user = '${spark.x}'",
        "user LIKE 'a_%'",
        "user LIKE '%a%'",
        "user LIKE '😀%'",
        "user LIKE 'a%' ESCAPE '/'",
        "user = 'a' COLLATE UTF8_LCASE",
        "flag = 1",
        "flag > false",
        "flag IS TRUE",
        "day > date'2026-01-01'",
        "n IN (SELECT 1)",
        "n IN (1, NULL)",
        "n IN (1, 'a')",
        "n = NULL",
        "TRUE",
        "",
        "n >",
        ")",
        "'",
        "n > 1é",
        "n > 1 ANDé",
        "user = '\ud800'",
        "(" * 5000 + "flag" + ")" * 5000,
        "NOT " * 1000 + "flag",
        "n > 1" + " " * 10_000,
        "n > " + "1" * 5000,
    ],
)
def test_all_else_is_not_understood_and_no_error(condition: str) -> None:
    assert understood([condition], ORDERS.schema) is None


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("n", (Column("n"), "n")),
        ("`and`", (Column("and"), "and")),
        ("flag AS user", (Column("flag"), "user")),
        ("day as `x y`\n", (Column("day"), "x y")),
        ("x * 1.2", (Arithmetic(Column("x"), "*", 1.2), None)),
        ("-3 - x AS less", (Arithmetic(-3.0, "-", Column("x")), "less")),
        ("x + -0.5", (Arithmetic(Column("x"), "+", -0.5), None)),
        ("x - - 2", (Arithmetic(Column("x"), "-", -2.0), None)),
        ("x * -0.0", (Arithmetic(Column("x"), "*", 0.0), None)),  # a decimal, which has one zero
        ("x*x", (Arithmetic(Column("x"), "*", Column("x")), None)),
    ],
)
def test_columns_and_arithmetic_of_doubles_are_understood(expression: str, value: object) -> None:
    assert repr(projected(expression, ORDERS.schema)) == repr(value)


@pytest.mark.parametrize(
    "expression",
    [
        "", "1", "1.5 AS n", "'a'", "TRUE", "NULL", "x n", "x AS", "x AS 'n'", "x AS n, n", "x, n", "*", "x.*", "X",
        "y", "n + 1", "f * 2", "x * n", "x * f", "1 * 2", "x / 2", "x % 2", "x * 1.2 * 2", "x * 1e2", "x * 2L",
        "x * 'a'", "x * true", "x * 1234567890123456789", "x * 9007199254740993", "x * 1.234567890123456789", "-x",
        "+x", "(x)", "x --1", "x -- AS n", "x /* AS n */", "x * /* 2 */ 3", "x *-- 2\n3", "upper(user)", "x->n",
        "${x}", "x * ${y}", "x" + " " * 10_000, "x AS n\ud800", "user COLLATE UTF8_LCASE", "n > 1",
        "flag AND flag", "x IS NULL",
    ],
)  # fmt: skip
def test_no_other_value_is_understood(expression: str) -> None:
    assert projected(expression, ORDERS.schema) is None
