"""What is understood of SQL, and that all else is no error."""

from __future__ import annotations

import math
from datetime import date

import pyarrow as pa
import pytest
from tests.engine.plain.texts import rows_kept

from tidegauge.engine.plain import chain, projected, understood
from tidegauge.job.plan import Filter, Select

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
        (["n > 1 AND soundex(user) = 'B'"], [2, 3, 4]),
        (["n > 1", "soundex(user) = 'B'"], [2, 3, 4]),
        (["n > 1", "user = 'b' AND 1 / n > 0"], [2, 4]),
        (["n > 1 AND soundex(color) = 'B'"], [2, 3, 4]),
        (["n BETWEEN 1 AND 3 AND 1 / n > 0"], [1, 2, 3]),
    ],
)
def test_a_conjunction_is_understood_up_to_what_is_not_and_its_nulls_stay(chain: list[str], rows: list[int]) -> None:
    assert rows_kept(ORDERS, *chain) == (rows, False)


@pytest.mark.parametrize(
    "condition",
    [
        "soundex(user) = 'B' AND n > 1",
        "n > 1 OR soundex(user) = 'B'",
        "n > 1 AND soundex(user) = 'B' OR flag",
        "n > 1 AND x /* OR */ > n",
        "NOT (n > 1 AND soundex(user) = 'B')",
        "NOT soundex(user) = 'B' AND n > 1",
        "(n > 1 AND soundex(user) = 'B')",
        "(n > 1 AND soundex(user) = 'B') OR n > 2",
        "n > 1 + 1",
        "n - 1 > 1",
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
    ("expression", "name", "kind"),
    [
        ("n", "n", "int32"),
        ("`and`", "and", "int64"),
        ("flag AS user", "user", "bool"),
        ("day as `x y`\n", "x y", "date32[day]"),
        ("x * 1.2", None, "double"),
        ("-3 - x AS less", "less", "double"),
        ("x - - 2", None, "double"),
        ("x*x", None, "double"),
        ("x * n", None, "double"),
        ("n + 1", None, "int32"),
        ("n + 2147483648", None, "int64"),
        ("n / 2", None, "double"),
        ("n % `and` AS rest", "rest", "int64"),
        ("-n", None, "int32"),
        ("(x)", "x", "double"),
        ("n > 1", None, "bool"),
        ("x IS NULL", None, "bool"),
        ("'a' AS kind", "kind", "string"),
        ("1", None, "int32"),
        ("CASE WHEN flag THEN n ELSE 0.5 * x END AS `case`", "case", "double"),
        ("case n when 1 then 'a' when 2 then 'b' end AS end", "end", "string"),
        ("if(n > 1 and flag, day, null)", None, "date32[day]"),
        ("coalesce(n, `and`, 0)", None, "int64"),
        ("nvl(x, 0)", None, "double"),
        ("nullif(user, '')", None, "string"),
        ("upper(trim(user)) || '!'", None, "string"),
        ("concat_ws('-', user, 'a')", None, "string"),
        ("substring(user, 2, 3)", None, "string"),
        ("length(user) > 3 AND user LIKE '_a%'", None, "bool"),
        ("cast(user AS INT)", None, "int32"),
        ("try_cast(user AS bigint)", None, "int64"),
        ("cast(x as int)", None, "int32"),
        ("cast(n AS string)", None, "string"),
        ("year(day)", None, "int32"),
        ("date_add(day, 7)", None, "date32[day]"),
        ("to_date(user)", None, "date32[day]"),
    ],
)
def test_values_are_understood_with_their_types_and_names(expression: str, name: str | None, kind: str) -> None:
    found = projected(expression, ORDERS.schema)
    assert found is not None
    assert (str(found[0].kind), found[1]) == (kind, name)


@pytest.mark.parametrize(
    "expression",
    [
        "", "1.5 AS n", "NULL", "x n", "x AS", "x AS 'n'", "x AS n, n", "x, n", "*", "x.*", "X",
        "y", "f * 2", "x * f", "1 * 2", "- - 1", "x * 1e2", "x * 2L", "n + 1.5", "n + NULL", "n = NULL",
        "x * 'a'", "x * true", "x * 12345678901234567890", "x * 1.234567890123456789", "n DIV 2", "x ^ 2",
        "+x", "x --1", "x -- AS n", "x /* AS n */", "x * /* 2 */ 3", "x *-- 2\n3", "soundex(user)", "x->n",
        "${x}", "x * ${y}", "x" + " " * 10_000, "x AS n\ud800", "user COLLATE UTF8_LCASE", "user + 1", "user > 1",
        "CASE WHEN flag THEN 1 ELSE 'a' END", "CASE flag END", "CASE WHEN flag THEN 1", "if(flag, 1)",
        "if(TRUE, n, 1)",
        "coalesce(n, 1.5)", "coalesce()", "coalesce(NULL)", "nvl(n, 1, 2)", "flag AND TRUE", "NOT NULL", "n + n + 1",
        "cast(x AS string)", "cast(f AS double)", "cast(day AS string)", "cast(n AS date)",
        "cast(n AS decimal(9, 2))",
        "cast(x AS smallint)", "cast('1' AS int)", "upper(lower(user))", "upper(n)", "upper('a')", "concat(user, n)",
        "substring(user, n, 1)", "substring(user, 2.0)", "replace(user, '', 'x')", "replace(user, user, 'x')",
        "startswith(user, user)", "trim(user, 'x')", "trim(BOTH 'x' FROM user)", "concat_ws(user, user)", "hour(day)",
        "concat_ws('-')", "to_date(user, 'yyyy')", "date_trunc(user, day)", "date_trunc('DAY', day)", "day.x",
        "length(NULL)", "date'2026-01-01'", "date_add(day, '1')", "year(user)", "user LIKE user",
        "current_date()", "uuid()", "rand()", "a.b.coalesce(n, 1)", "`coalesce`(n, 1)", "coalesce(DISTINCT n, 1)",
        "n" + " + n" * 2000, "(" * 3000 + "n" + ")" * 3000, "-" * 1 + " -" * 3000 + "n",
    ],
)  # fmt: skip
def test_no_other_value_is_understood(expression: str) -> None:
    assert projected(expression, ORDERS.schema) is None


@pytest.mark.parametrize(
    ("expressions", "sure"),
    [
        (["100 / n"], True),
        (["100 / n", "100 / n + 1"], True),
        (["CASE WHEN n <> 0 THEN 100 / n END"], True),
        (["n <> 0 AND 100 / n > 3"], True),
        (["coalesce(n, 1) + 2"], True),
        (["CASE WHEN 100 / n > 3 THEN 'large' ELSE 'small' END"], True),
        # computed once, before it is known whether it is wanted
        (["n <> 0 AND 100 / n > 3", "100 / n"], False),
        (["if(n <> 0, 100 / n, 0) + if(n > 0, 100 / n, 1)"], False),
        (["n > 0 AND 100 / n BETWEEN 1 AND 3"], False),
        # the same, so that one of them is left out
        (["(flag AND 100 / n > 3) OR (flag AND x > 1)"], False),
        (["if(100 / n > 3, x, x)"], False),
        (["coalesce(`and`, 0) + 2147483648 > 0 AND (`and` + 1) IS NULL"], False),
        (["if(100 / n > 3, 1, 2) > 0"], False),
    ],
)
def test_what_may_raise_is_understood_where_spark_asks_for_it_too(expressions: list[str], *, sure: bool) -> None:
    """Spark's optimizer keeps values, not errors."""
    picks = tuple(f"{text} AS c{number}" for number, text in enumerate(expressions))
    names = [f"c{number}" for number in range(len(picks))]
    assert (chain([Select(picks)], [names], ORDERS.schema) is not None) is sure


@pytest.mark.parametrize(
    ("steps", "sure"),
    [
        ([Filter("100 / n > 3"), Filter("n > 1"), Select(("n",))], True),
        ([Filter("n <> 0"), Select(("100 / n AS q",))], True),
        ([Select(("100 / n AS q", "n")), Select(("n",))], False),
        ([Select(("100 / n AS q", "n")), Filter("n > 3")], False),
    ],
)
def test_values_that_may_raise_are_those_of_the_last_step(steps: list[Filter | Select], *, sure: bool) -> None:
    """Spark computes none that nobody wants, and none of a row that goes."""
    names = [["q", "n"][: len(step.expressions)] if isinstance(step, Select) else ["n"] for step in steps]
    if isinstance(steps[-1], Select):
        names[-1] = ["q"] if "AS q" in steps[-1].expressions[0] else ["n"]
    assert (chain(steps, names, ORDERS.schema) is not None) is sure


def test_what_may_raise_drops_no_row_before_spark_sees_it() -> None:
    first = understood(["n > 1"], ORDERS.schema)
    assert first is not None
    assert understood(["n > 1 AND 100 / n > 3"], ORDERS.schema) == (first[0], False)
    assert understood(["100 / n > 3"], ORDERS.schema) is None
