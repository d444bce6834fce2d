"""Spark with Delta's own JAR packs, deletes and reads a table by key between our commits."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from deltalake import DeltaTable
from tests.sinks.keyed.test_upsert_laws import KEY_KINDS, KEYS, SMALL, Bench, Change
from tests.sinks.spark_delta import DeltaSpark, delta_spark

from tidegauge.sinks.delta import bykey

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def spark() -> Iterator[DeltaSpark]:
    with delta_spark() as started:
        yield started


def shown(bench: Bench) -> dict[tuple[Any, ...], tuple[int | None, int]]:
    """Read as deltalake does: Spark writes instants in a way of its own."""
    rows = DeltaTable(bench.sink.path).to_pyarrow_table().to_pylist()
    found = {tuple(row[name] for name in bench.kind.names): (row["value"], row["_epoch"]) for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.parametrize("kind", ["long", "text", "long text", "two", "instant", "decimal"])
def test_what_spark_rewrites_is_merged_into_and_what_it_deletes_stays_deleted(
    kind: str, spark: DeltaSpark, tmp_path: Path
) -> None:
    with mock.patch.object(bykey, "SIZES", SMALL):
        bench = Bench(str(tmp_path), KEY_KINDS[kind], operating=False, random=random.Random(7))
        table = f"delta.`{bench.sink.path}`"
        for turn, statement in enumerate(
            (
                "optimize {}",
                "optimize {} zorder by (value)",
                "delete from {} where value = 3",
                "vacuum {} retain 0 hours",
            )
        ):
            changes = [Change(n * (turn + 2) % KEYS, "update", n % 5) for n in range(9)]
            bench.commit([changes, changes[:4]])
            spark.sql(statement.format(table))
            if statement.startswith("delete"):
                bench.wanted = {key: said for key, said in bench.wanted.items() if said[0] != 3}
            assert shown(bench) == bench.named(bench.wanted)
            assert spark.sql(f"select count(*), count(distinct {', '.join(bench.kind.names)}) from {table}") == [
                [len(bench.wanted), len(bench.wanted)]
            ]
