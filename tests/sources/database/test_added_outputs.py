"""An output of a table that is added once upstream was told that the first rows are durable: it fails alone, or it
begins now."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.sources.mysql.store import Store
from tests.sources.postgres.shop import Shop
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.dsl.stream import RowStream
from tidegauge.errors.outputs import OutputLeftBehind

pytestmark = pytest.mark.long


@pytest.fixture(params=["logical", "mariadb"])
def there(request: pytest.FixtureRequest, tmp_path: Path) -> Shop | Store:
    """A database whose table a flow holds."""
    server = request.getfixturevalue(request.param)
    found = Shop(server, tmp_path) if request.param == "logical" else Store(server, tmp_path)
    found.table("orders", "id int PRIMARY KEY, who text")
    found.do("INSERT INTO orders VALUES (1, 'ada'), (2, 'bob')")
    if isinstance(found, Shop):
        found.publish()
    found.catch_up()
    found.do("INSERT INTO orders VALUES (3, 'eve')")
    found.catch_up()
    return found


def with_more(there: Shop | Store, root: Path, start: str | None = None) -> tg.Dataflow:
    flow = there.flow()
    db = RowStream(flow, "db")
    sink = tg.DeltaSink(str(root / "more"), envelope="upsert", key="id", order="_sequence")
    flow.sink("more", db.table("orders"), sink, start=start)
    return flow


def test_an_output_that_needs_the_first_rows_fails_alone_and_begins_now_when_told(
    there: Shop | Store, tmp_path: Path
) -> None:
    there.do("UPDATE orders SET who = 'ann' WHERE id = 1")
    run = with_more(there, tmp_path).start(engine=tg.LocalEngine(threads=2))
    eventually(lambda: there.held(there.flow(), "orders") == there.there("orders"))
    there.do("INSERT INTO orders VALUES (4, 'joe')")
    eventually(lambda: there.held(there.flow(), "orders") == there.there("orders"))
    status = tg.status(with_more(there, tmp_path))
    (more,) = (one for one in status.outputs if one.name == "more")
    assert (more.state, status.sources[0].state) == ("failed", "running")
    run.stop()
    with pytest.raises(OutputLeftBehind, match=r"TG-0378|TG-0348"):
        run.wait()
    flow = with_more(there, tmp_path, start="now")
    flow.run(until="caught-up", engine=tg.LocalEngine(threads=2))
    there.do("UPDATE orders SET who = 'sam' WHERE id = 2", "DELETE FROM orders WHERE id = 3")
    flow.run(until="caught-up", engine=tg.LocalEngine(threads=2))
    assert there.held(flow, "orders") == there.there("orders")
    rows = tg.read_arrow(flow, "more").select(["id", "who"]).to_pylist()
    assert rows == [{"id": 2, "who": "sam"}]
