"""The same flow gives equal tables on the local engine and on Spark:

classic, Connect, and a cluster of two workers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.engine import whole_flow
from tests.engine.elsewhere import Found
from tests.engine.whole_flow import Rows

import tidegauge as tg
from tidegauge.engine import SparkEngine

pytestmark = [pytest.mark.spark]


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    root = tmp_path_factory.mktemp("local")
    whole_flow.fill(root)
    flow = whole_flow.arrow_flow(root)
    flow.run("caught-up", engine=tg.LocalEngine(threads=2))
    return whole_flow.rows(flow)


def check(found: Rows, local: Rows) -> None:
    """What the local engine can run is equal, and SQL has filtered, selected and counted the same rows."""
    assert {output: found[output] for output in local} == local
    whole_flow.check_sql(found, local)
    large = [json.loads(row) for row in found["large"]]
    first = sum(row["_epoch"] == 0 for row in large)
    assert found["large as of 0, by Spark"] == [str(first)]


def test_the_local_engine_reads_every_record_once(local: Rows) -> None:
    assert {output: len(rows) for output, rows in local.items()} == {
        "orders": 380,
        "taxed": 380,
        "notes": 120,
        "ticks": 900,
        "both": 120 + sum(n > 100 for n in (*range(300), *range(1000, 1080))),
        "users": 7,
    }


def test_a_flow_on_a_classic_session(local: Rows, classic: Any, tmp_path: Path) -> None:
    check(whole_flow.run_flows(classic, tmp_path), local)


def test_a_classic_session_replaces_a_table_and_reads_it_whole_before_and_after(classic: Any, tmp_path: Path) -> None:
    whole_flow.fill(tmp_path)
    engine = SparkEngine(classic)
    old, new = whole_flow.spark_flow(tmp_path), whole_flow.spark_flow(tmp_path, rate=2)
    old.run("caught-up", engine=engine)
    seen: list[list[float]] = []

    def gross() -> list[float]:
        return sorted(row[0] for row in tg.read(classic, new, "large").select("gross").collect())

    def strike(point: str) -> None:
        if point.endswith(" commit output"):
            seen.append(gross())

    before = gross()
    tg.replace(new, "large")
    new.run("caught-up", engine=engine, env=tg.Env(point=strike))
    engine.close()
    assert seen == [before, gross()]
    assert gross() == pytest.approx([amount / 1.2 * 2 for amount in before])
    assert DeltaTable(f"{tmp_path}/sql/large").to_pyarrow_table().num_rows == len(before)


def test_a_flow_on_a_connect_session(local: Rows, connect: Found) -> None:
    check(connect.rows, local)


@pytest.mark.long
def test_a_flow_on_a_cluster_of_two_workers(local: Rows, cluster: Found) -> None:
    check(cluster.rows, local)
