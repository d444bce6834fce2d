"""Law: the rows of a flow are the same on every session, whatever its settings; and no session is changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.engine.elsewhere import Found
from tests.engine.unlike import flow_in, lines, tables, unlike

import tidegauge as tg
from tidegauge.engine.spark.copied import jobs_of

pytestmark = [pytest.mark.spark]


@pytest.fixture(scope="module")
def expected(classic: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    return tables(classic, tmp_path_factory.mktemp("classic") / "shop")


def test_days_and_hours_are_those_of_utc(expected: dict[str, list[str]]) -> None:
    telling = "\n".join(expected["telling"])
    assert "datetime.date(2026, 3, 29), 1, '2026-03-29 01', '2026-03-29 01:10:00'" in telling
    assert "'UTC', 'bob', 0)" in telling
    assert len(expected["late"]) == 1 + 1, "the schema, and the one order of that day"
    assert sum("2026-03-29" in line for line in expected["by_day"]) == 1


def test_a_session_with_other_settings_gives_the_same_rows(
    classic: Any, expected: dict[str, list[str]], tmp_path: Path
) -> None:
    with unlike(classic):
        assert tables(classic, tmp_path / "shop") == expected


def test_a_connect_session_with_other_settings_gives_the_same_rows(
    connect: Found, expected: dict[str, list[str]]
) -> None:
    assert connect.unlike == expected


def test_what_reads_a_table_back_reads_what_is_in_it(expected: dict[str, list[str]]) -> None:
    for name in ("as_it_is", "telling", "by_day"):
        assert expected[f"{name}, by Spark"] == expected[name][1:]


def test_a_session_that_overlooks_missing_files_is_told_of_a_row_that_is_missing(
    classic: Any, tmp_path: Path
) -> None:
    flow = flow_in(tmp_path / "shop", "as_it_is")
    flow.run("caught-up", engine="local")
    with unlike(classic):
        frame = tg.read(classic, flow, "as_it_is")
        [file] = (tmp_path / "shop" / "lake" / "as_it_is").rglob("*.parquet")
        file.unlink()
        with pytest.raises(Exception, match=r"FAILED_READ_FILE|does not exist"):
            lines(frame.toArrow())


def test_a_dataframe_of_the_users_own_session_can_be_joined(classic: Any, tmp_path: Path) -> None:
    towns = classic.createDataFrame([("ada", "London")], "user string, town string")
    flow = tg.Dataflow("joined", store=f"sqlite:///{tmp_path}/flow.db")
    rows = flow_in(tmp_path / "shop").sources["orders"]
    orders = flow.source("orders", rows)
    joined = orders.transform(lambda df: df.join(towns, "user").select("id", "town", "_epoch"))
    flow.sink("joined", joined, tg.ParquetSink(str(tmp_path / "joined")))
    flow.run("caught-up", spark=classic)
    assert tg.read_arrow(flow, "joined").select(["id", "town"]).sort_by("id").to_pylist() == [
        {"id": 0, "town": "London"},
        {"id": 2, "town": "London"},
    ]


def test_a_connect_server_that_cannot_copy_a_session_is_refused_by_name_of_the_settings(connect: Found) -> None:
    code, said = connect.uncopied
    assert code == "TG-0590"
    assert "spark.sql.caseSensitive" in said
    assert "spark.sql.session.timeZone" in said


def test_a_connect_session_that_is_as_it_has_to_be_is_used_itself(connect: Found) -> None:
    assert connect.joined == ["TG-0591", "London"]


LIMIT = "spark.sql.codegen.hugeMethodLimit"


def test_jobs_on_a_copy_make_no_method_that_java_would_not_compile(classic: Any) -> None:
    assert jobs_of(classic).session.conf.get(LIMIT) == "8000"
    assert LIMIT not in classic.conf.getAll


def test_how_long_a_method_may_be_is_the_users_where_the_user_has_said_it(classic: Any) -> None:
    classic.conf.set(LIMIT, "9000")
    try:
        assert jobs_of(classic).session.conf.get(LIMIT) == "9000"
    finally:
        classic.conf.unset(LIMIT)
