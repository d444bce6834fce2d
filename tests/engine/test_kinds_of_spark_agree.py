"""The same jobs give the same rows on every engine and every kind of session, and read the source once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.engine.cases import ROWS, arrow_plans, run_case, spark_plans
from tests.engine.elsewhere import Found

from tidegauge.engine import LocalEngine, SparkEngine

pytestmark = [pytest.mark.spark]


@pytest.fixture(scope="module")
def expected(classic: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    spark, folder = SparkEngine(classic), tmp_path_factory.mktemp("classic")
    jobs = {**arrow_plans(folder), **spark_plans(folder)}
    return {case: run_case(spark, folder, case, plans) for case, plans in jobs.items()}


def test_a_classic_session_reads_each_split_once_for_all_outputs(expected: dict[str, Any]) -> None:
    once = expected["as it is"]["reads"]
    assert len(once) == 6
    assert all(found["reads"] == once for found in expected.values())
    assert {found["bytes"]["orders"] for found in expected.values()} == {ROWS.num_rows * 100}


def test_a_classic_session_gives_the_rows_that_the_steps_say(expected: dict[str, Any]) -> None:
    rows = expected["all at once"]["rows"]
    ids = [row["id"] for row in ROWS.to_pylist()]
    assert sorted(row["id"] for row in rows["all"]) == ids
    assert sorted(row["id"] for row in rows["some"]) == [i for i in ids if i % 7 and i % 5 > 2]
    assert {(row["id"], row["share"]) for row in rows["some"]} == {
        (i, 100 / (i % 5)) for i in ids if i % 7 and i % 5 > 2
    }
    assert sorted(row["id"] for row in rows["late"]) == [i for i in ids if i % 24 >= 12]
    assert sorted((row["id"], row["tag"]) for row in rows["exploded"]) == [(i, str(i)) for i in ids]
    assert sorted(row["twice"] for row in rows["between"]) == [2 * i for i in ids if i % 7 and i % 5 == 1]
    assert {(row["_epoch"], row["user"]) for row in rows["users"]} == {
        (e, f"u{u}") for e in range(3) for u in range(3)
    }
    assert all(row["at"].endswith("+00:00") for row in rows["some"])


def test_a_classic_session_filters_operations(expected: dict[str, Any]) -> None:
    rows = expected["operations"]["rows"]
    words = ["insert", "update", "delete", "before"]
    left = {
        row["id"]: words[row["id"] % 4] if (row["n"] or 0) > 2 else "delete"
        for row in ROWS.to_pylist()
        if (row["n"] or 0) > 2 or row["id"] % 4 in {1, 2}
    }
    assert {row["id"]: row["op"] for row in rows["filtered"]} == left
    assert {row["id"]: row["_op"] for row in rows["framed"]} == left


def test_a_classic_session_keeps_the_first_row_of_each_key(expected: dict[str, Any]) -> None:
    ids = [row["id"] for row in ROWS.to_pylist()]
    epochs = [ids[:13], ids[13:26], ids[26:]]
    firsts = {
        (e, n): next(i for i in mine if i % 7 and i % 5 == n) for e, mine in enumerate(epochs) for n in (2, 3, 4)
    }
    rows = expected["ordered"]["rows"]
    assert {(row["_epoch"], row["id"] % 5): row["id"] for row in rows["firsts"]} == firsts
    assert sorted(row["id"] for row in rows["after"]) == sorted(firsts.values())
    assert sorted(row["tag"] for row in rows["tags"]) == sorted(map(str, ids))


def test_the_local_engine_gives_what_spark_gives(
    expected: dict[str, Any], tmp_path: Path, local: LocalEngine
) -> None:
    folder = tmp_path / "local"
    folder.mkdir()
    for case, plans in arrow_plans(folder).items():
        assert run_case(local, folder, case, plans) == expected[case]


@pytest.mark.long
def test_a_connect_session_gives_what_a_classic_one_gives(expected: dict[str, Any], connect: Found) -> None:
    assert connect.cases == expected


@pytest.mark.long
def test_two_standalone_workers_give_what_one_process_gives(expected: dict[str, Any], cluster: Found) -> None:
    assert cluster.cases == expected
