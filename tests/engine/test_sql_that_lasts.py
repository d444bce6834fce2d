"""Which SQL gives the same whenever Spark plans it, by Spark's own analysis of it."""

from __future__ import annotations

from typing import Any

import pytest

from tidegauge.engine.spark.lasting import lasts
from tidegauge.engine.spelling import Projection, SparkStep
from tidegauge.job.plan import Filter

pytestmark = pytest.mark.spark

LASTING = """
    md5(user)
    upper(user) || '!'
    sha2(user, 256)
    id + 1
    -id
    id IN (1, 2, 3)
    user BETWEEN 'a' AND 'b'
    CASE WHEN id > 1 THEN 'many' END
    regexp_replace(user, '[a-z]', '')
    split(user, ',')[0]
    nvl(user, 'nobody')
    date_format(at, 'yyyy')
    date_trunc('day', at)
    date_add(to_date(at), 1)
    at + INTERVAL 1 DAY
    at > '2026-01-01'
    at > TIMESTAMP '2026-01-01 00:00:00'
    at > DATE '2026-01-01'
    unix_timestamp(user)
    to_timestamp(user)
    CAST(user AS TIMESTAMP)
    transform(tags, x -> upper(x))
    from_json(user, 'a INT')
"""
PASSING = """
    now()
    current_date
    current_timestamp()
    localtimestamp()
    unix_timestamp()
    current_timezone()
    current_user()
    rand()
    uuid()
    shuffle(tags)
    monotonically_increasing_id()
    input_file_name()
    (SELECT max(id) FROM range(3))
    java_method('java.util.UUID', 'randomUUID')
    ours(user)
    DATE 'today'
    date"yesterday"
    TIMESTAMP /* of all */ 'now'
    TIMESTAMP '\\u006eow'
    '${ours}' || user
    at > 'now'
    at > ' Tomorrow'
    date('now')
    to_date('now')
    to_timestamp('now')
    to_unix_timestamp('now')
    year('today')
    datediff(at, 'today')
    'now' BETWEEN user AND 'b'
    CAST('epoch' AS TIMESTAMP)
    CAST(concat('n', 'ow') AS TIMESTAMP)
    CAST(CASE WHEN true THEN 'now' END AS DATE)
"""


def said(texts: str) -> list[str]:
    return [line.strip() for line in texts.strip().splitlines()]


@pytest.fixture(scope="module")
def frame(classic: Any) -> Any:
    classic.udf.register("ours", lambda user: user)
    blank = "id long, user string, at timestamp, tags array<string>, _epoch long"
    return classic.range(0, 1, 1, 1).mapInArrow(lambda _batches: iter(()), blank)


@pytest.mark.parametrize("text", said(LASTING))
def test_what_its_arguments_alone_decide_lasts(frame: Any, text: str) -> None:
    assert lasts(frame.selectExpr("id", f"{text} AS found"), [Projection(("id", text), "select")])


@pytest.mark.parametrize("text", said(PASSING))
def test_what_spark_fixes_as_it_plans_or_what_is_not_known_does_not(frame: Any, text: str) -> None:
    assert not lasts(frame.selectExpr("id", f"{text} AS found"), [Projection(("id", text), "select")])


def test_each_step_has_to_last(frame: Any) -> None:
    steps: list[SparkStep] = [Filter("user > md5(user)"), Filter("at > 'now'"), Projection(("id",), "select")]
    of_all = frame.filter("user > md5(user)").filter("at > 'now'").select("id")
    assert not lasts(of_all, steps)
    assert lasts(frame.filter("user > md5(user)").select("id"), [steps[0], steps[2]])


def test_steps_that_are_more_than_filters_and_projections_do_not(frame: Any) -> None:
    assert not lasts(frame.distinct(), [])
    assert not lasts(frame.selectExpr("explode(tags) AS tag"), [Projection(("explode(tags) AS tag",), "select")])
