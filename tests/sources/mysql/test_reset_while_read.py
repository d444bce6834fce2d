"""A log that is begun anew while the first rows are read, and is as long again, is not taken for the flow's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.sources.mysql.store import Store
from tests.waiting import eventually

from tidegauge.errors.mysqlsource import BinlogServerAway
from tidegauge.remap.binding import Bound
from tidegauge.remap.frontier import Frontier

pytestmark = pytest.mark.long


@pytest.mark.parametrize("kind", ["mariadb", "mysql"])
def test_a_reset_while_the_first_rows_are_read(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> None:
    server: Any = request.getfixturevalue(f"own_{kind}")
    store = Store(server, tmp_path)
    store.table("orders", "id int PRIMARY KEY, note text")
    store.do("INSERT INTO orders SELECT seq, repeat('x', 100) FROM seq_1_to_5000")
    source = store.source().placed("store", "db")
    subscription = source.connect(Frontier(), Bound())
    subscription.receive(10, 0.1)
    while not any((tmp_path / "my").rglob("0.arrows")):
        assert subscription.receive(10, 0.0001) is None
    server.do("RESET MASTER")
    for n in range(40):
        store.do(f"INSERT INTO orders VALUES ({n + 10_000}, 'new')")
    with pytest.raises(BinlogServerAway, match="another one while"):
        eventually(lambda: subscription.receive(10, 0.1) is not None)
    subscription.close()
    store.catch_up()
    assert len(store.held(store.flow(), "orders")) == 5040
