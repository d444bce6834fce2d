"""An error of a commit is a question, and the table answers it: after it, and before the next attempt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, ServiceUnavailableError
from sqlalchemy.exc import OperationalError
from tests.sinks.iceberg.conftest import SCHEMA, IcebergBench

from tidegauge.errors.base import Transient
from tidegauge.errors.iceberg import CatalogAway, CatalogForbidden
from tidegauge.errors.sinks import TableBusy, TableUpperMismatch
from tidegauge.sinks.iceberg.catalog import CatalogPlace

ERRORS: list[Callable[[], Exception]] = [
    lambda: CommitStateUnknownException("502"),
    lambda: ServiceUnavailableError("503"),
    lambda: CommitFailedException("409, after a retry of the client's own"),
    lambda: OperationalError("UPDATE", {}, Exception("database is locked")),
    lambda: ConnectionResetError(104, "Connection reset by peer"),
    lambda: KeyError("a bug of the client's"),
]

SOME = [
    make if isinstance(make(), CommitFailedException) else pytest.param(make, marks=pytest.mark.long)
    for make in ERRORS
]


@contextmanager
def answering(
    error: Exception, *, done: bool, times: int = 1, beside: Callable[[], None] | None = None
) -> Iterator[Any]:
    """Let commits raise an error, with what was asked done before, or not. beside: what somebody else does then."""
    real, left = SqlCatalog.commit_table, [times]

    def commit(self: Any, *asked: Any) -> Any:
        if not left[0]:
            return real(self, *asked)
        left[0] -= 1
        if done:
            real(self, *asked)
        if beside is not None:
            beside()
        raise error

    with mock.patch.object(SqlCatalog, "commit_table", commit):
        yield


@pytest.mark.parametrize("first", [True, False], ids=["first commit", "later commit"])
@pytest.mark.parametrize("error", SOME, ids=lambda make: type(make()).__name__)
def test_a_commit_that_is_in_is_told_to_be_in(bench: IcebergBench, error: Any, first: bool) -> None:
    table = bench.filled(0 if first else 2)
    at = table.upper
    with answering(error(), done=True):
        bench.commit(table, at, at + 1)
    assert table.upper == at + 1
    assert bench.epochs() == list(range(at + 1))
    assert bench.open().upper == at + 1


@pytest.mark.parametrize("error", SOME, ids=lambda make: type(make()).__name__)
def test_a_commit_that_is_not_in_is_made_by_the_next_attempt(bench: IcebergBench, error: Any) -> None:
    table = bench.filled(2)
    files = bench.stage([{"user": "ada", "amount": 1.5, "_epoch": 2}])
    with answering(error(), done=False):
        if isinstance(error(), CommitFailedException):
            table.commit(2, 3, SCHEMA, files, write="1" * 32)
        else:
            with pytest.raises(Transient):
                table.commit(2, 3, SCHEMA, files, write="1" * 32)
            assert bench.epochs() == [0, 1]
    table.commit(2, 3, SCHEMA, files, write="1" * 32)
    assert bench.epochs() == [0, 1, 2]


@pytest.mark.long
def test_where_the_table_cannot_be_looked_at_the_next_attempt_looks_first(bench: IcebergBench) -> None:
    table = bench.filled(2)
    files = bench.stage([{"user": "ada", "amount": 1.5, "_epoch": 2}])
    gone = CatalogAway(table="shop.orders", catalog="lake", detail="503")
    looks = mock.patch.object(CatalogPlace, "load", side_effect=[bench.table, gone])
    with answering(ServiceUnavailableError("503"), done=True), looks, pytest.raises(CatalogAway):
        table.commit(2, 3, SCHEMA, files, write="1" * 32)
    assert bench.epochs() == [0, 1, 2]
    for _ in range(2):
        table.commit(2, 3, SCHEMA, files, write="1" * 32)
    assert bench.epochs() == [0, 1, 2]
    assert table.upper == 3


def test_a_stale_driver_is_refused_between_its_look_and_its_commit(bench: IcebergBench) -> None:
    """As pyiceberg would by itself put the files of the one on top of the other's."""
    slow, fast = bench.filled(1), bench.open()
    real, turn = SqlCatalog.commit_table, [True]

    def commit(self: Any, *asked: Any) -> Any:
        if turn.pop() if turn else False:
            bench.commit(fast, 1, 2, "fast")
        return real(self, *asked)

    with mock.patch.object(SqlCatalog, "commit_table", commit), pytest.raises(TableUpperMismatch):
        bench.commit(slow, 1, 2, "slow")
    assert [(row["user"], row["_epoch"]) for row in bench.rows()] == [("fast", 1), ("ada", 0)]


@pytest.mark.long
def test_others_who_commit_all_the_time_are_given_way_to_and_named_in_the_end(bench: IcebergBench) -> None:
    table = bench.filled(1)
    with answering(CommitFailedException("409"), done=False, times=3):
        bench.commit(table, 1, 2)
    with answering(CommitFailedException("409"), done=False, times=1000), pytest.raises(TableBusy):
        bench.commit(table, 2, 3)
    assert bench.epochs() == [0, 1]


@pytest.mark.long
def test_a_catalog_that_refuses_access_says_so(bench: IcebergBench) -> None:
    from pyiceberg.exceptions import ForbiddenError

    table = bench.filled(1)
    with answering(ForbiddenError("403"), done=False), pytest.raises(CatalogForbidden, match="403"):
        bench.commit(table, 1, 2)
