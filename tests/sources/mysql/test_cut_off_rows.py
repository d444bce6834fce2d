"""First rows whose reading is cut off: by a disk that is full, a connection that breaks, or a driver that dies."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.mariadb import MariaDb
from tests.sources.mysql.store import Store
from tests.waiting import eventually

from tidegauge.errors.mysqlsource import FirstRowsUnwritten
from tidegauge.remap.binding import Bound
from tidegauge.remap.frontier import Frontier

pytestmark = pytest.mark.long


@contextmanager
def full_disk(most: int) -> Iterator[None]:
    """Have no file grow beyond so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_is_full_is_told_as_such_and_not_as_a_server_that_is_away(
    mariadb: MariaDb, tmp_path: Path
) -> None:
    store = Store(mariadb, tmp_path)
    store.table("orders", "id int PRIMARY KEY, note text")
    store.do("INSERT INTO orders SELECT seq, repeat('x', 4000) FROM seq_1_to_3000")
    subscription = store.source().placed("store", "db").connect(Frontier(), Bound())
    subscription.receive(10, 0.1)
    with full_disk(5 << 20), pytest.raises(FirstRowsUnwritten, match=r"my/store/db: .*too large") as told:
        eventually(lambda: subscription.receive(10, 0.1) is not None)
    assert told.value.code == "TG-0964"
    subscription.close()
    assert len(store.held(store.catch_up(), "orders")) == 3000
