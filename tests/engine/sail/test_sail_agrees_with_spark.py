"""Law: what Sail is given has there the types and the values that it has on Spark, and all else is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.engine import whole_flow
from tests.engine.sail import listed
from tests.engine.sail.sailing import STEPS, Found

import tidegauge as tg


@pytest.fixture(scope="module")
def in_utc(classic: Any) -> Any:
    """A session beside the others, which compiles nothing: each expression is asked once."""
    beside = classic.newSession()
    for name, value in (
        ("spark.sql.session.timeZone", "UTC"),
        ("spark.sql.codegen.wholeStage", "false"),
        ("spark.sql.codegen.factoryMode", "NO_CODEGEN"),
    ):
        beside.conf.set(name, value)
    return beside


@pytest.mark.long
@pytest.mark.spark
def test_every_listed_expression_has_sparks_type_and_values(sail: Found, in_utc: Any) -> None:
    theirs = listed.values_of(in_utc)
    assert {text: kind for text, (kind, _) in theirs.items()} == listed.trusted()
    assert {text: found for text, found in sail.values.items() if found != theirs[text]} == {}
    assert set(sail.values) == set(theirs)


@pytest.mark.long
@pytest.mark.spark
def test_every_listed_frame_has_sparks_columns_and_rows(sail: Found, in_utc: Any) -> None:
    theirs = listed.frames_of(in_utc, check=False)
    assert {name: found for name, found in sail.frames.items() if found != theirs[name]} == {}
    assert set(sail.frames) == set(listed.FRAMES)


def test_types_are_known_before_sail_is_asked(sail: Found) -> None:
    assert {text: kind for text, (kind, _) in sail.values.items()} == listed.trusted()


def test_whole_flows_have_the_rows_of_the_local_engine(sail: Found, tmp_path: Path) -> None:
    whole_flow.fill(tmp_path)
    flow = whole_flow.arrow_flow(tmp_path)
    flow.run("caught-up", engine=tg.LocalEngine(threads=2))
    local = whole_flow.rows(flow)
    assert {output: sail.rows[output] for output in local} == local
    whole_flow.check_sql(sail.rows, local)


def test_a_function_before_several_outputs_is_given_each_row_once(sail: Found) -> None:
    assert sail.calls == 380


def test_the_spark_engine_does_not_run_on_it(sail: Found) -> None:
    assert sail.as_spark.startswith("TG-0693: the Spark Connect server says that its version is 0.")


def test_an_engine_goes_on_when_another_one_is_closed(sail: Found) -> None:
    assert sail.beside


def test_nothing_is_left_when_it_is_closed(sail: Found) -> None:
    assert sail.left == []


@pytest.mark.parametrize(
    ("step", "what"),
    [
        ("a sum in a frame", "transform(adding), which Sail is not given: '+' is not on the list"),
        ("a sum of longs", "the aggregate sum(int64) is not on the list"),
        ("a cast", "cast() is not on the list"),
        ("a sum beside", "select('size(tags) + 1 AS n'), which Sail is not given: '+' is not on the list"),
        ("a function", "'rand() > 0.5' is not in the part of SQL that Tidegauge reads"),
        ("other SQL", "'id & 1 AS odd' is not in the part of SQL that Tidegauge reads"),
        ("a query", "its plan has a sql"),
        ("a limit", "its plan has a limit"),
        ("python", "its plan has a map_partitions"),
    ],
)
def test_what_may_differ_is_refused_before_anything_is_written(sail: Found, step: str, what: str) -> None:
    assert what in sail.refused[step]
    assert " but wrote" not in sail.refused[step]


def test_a_function_between_two_steps_of_sail_that_raises_fails_its_output(sail: Found) -> None:
    said = sail.refused["a function that raises"]
    assert said.startswith("TG-")
    assert "raising" in said
    assert "no such order" in said
    assert "epoch 0" in said


def test_each_refusal_is_looked_at(sail: Found) -> None:
    assert set(sail.refused) == set(STEPS)
