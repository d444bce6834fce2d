"""Failures outlive the driver: a source's until it is cleared, an output's until its table is past it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.remap.store.raw import sql

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.engine import ExpressionFailed
from tidegauge.errors.flow import BatchFunctionFailed, NameTaken
from tidegauge.errors.redaction import Redaction
from tidegauge.remap.store import Lease, LoadedOutput, OutputSpec, Store
from tidegauge.remap.store.register import LONGEST, kept


def failed(name: str) -> TidegaugeError:
    return NameTaken(flow="shop", kind="source", name=name)


@pytest.fixture
def raw(store: Store, lease: Lease) -> str:
    """An output of `orders`."""
    store.register(lease, sources={}, outputs={"raw": OutputSpec("orders", {})})
    return "raw"


def test_of_a_source_the_failure_at_the_least_epoch_stays_until_it_is_cleared(
    opened: Callable[[], Store], store: Store, lease: Lease
) -> None:
    for epoch, name in [(7, "later"), (3, "first"), (3, "again"), (4, "second")]:
        store.record_failure(lease, "orders", epoch, failed(name))
    failure = opened().load("shop").sources["orders"].failure
    assert failure is not None
    assert (failure[0], type(failure[1]), failure[1].evidence) == (3, NameTaken, failed("first").evidence)
    store.clear_failure(lease, "orders")
    assert store.load("shop").sources["orders"].failure is None


def test_of_an_output_the_last_failure_stays_until_it_is_cleared(
    opened: Callable[[], Store], store: Store, lease: Lease, raw: str
) -> None:
    for epoch, detail in [(3, "first"), (7, "another"), (7, "last")]:
        store.record_output_failure(lease, raw, epoch, ExpressionFailed(output=raw, epoch=epoch, detail=detail))
    loaded = opened().load("shop")
    failure = loaded.outputs[raw].failure
    assert failure is not None
    assert (failure[0], type(failure[1]), failure[1].evidence["detail"]) == (7, ExpressionFailed, "last")
    assert loaded.sources["orders"].failure is None
    store.clear_output_failure(lease, raw)
    assert store.load("shop").outputs[raw].failure is None


@pytest.mark.parametrize(("table_upper", "outstanding"), [(0, True), (5, True), (6, False), (9, False)])
def test_a_failure_of_an_output_is_over_when_its_table_holds_the_epoch(table_upper: int, outstanding: bool) -> None:
    failure = (5, failed("x"))
    output = LoadedOutput(source="orders", config={}, failure=failure)
    assert output.outstanding(table_upper) == (failure if outstanding else None)
    assert LoadedOutput(source="orders", config={}, failure=None).outstanding(table_upper) is None


@pytest.mark.parametrize(
    "text",
    [
        "could not connect to postgresql://ada:hunter2@db:5432/shop",
        "could not connect to s3://AKIA:hunter2@bucket/x",
        "https://api.example.com/v1?user=ada&access_token=hunter2&page=2",
        "connection failed: host=db user=ada password=hunter2 dbname=shop",
        "OperationalError: {'user': 'ada', 'password': 'hunter2'}",
        'config {"aws_secret_access_key": "hunter2"}',
        "api-key: hunter2, retries: 3",
    ],
)
def test_a_password_in_what_a_function_raised_does_not_get_into_the_store(
    text: str, store: Store, lease: Lease, raw: str, url: str
) -> None:
    error = BatchFunctionFailed(function="f", output=raw, error=f"ValueError: {text}", epoch=1)
    store.record_output_failure(lease, raw, 1, error)
    store.record_failure(lease, "orders", 1, error)
    found = sql(url, "SELECT failure FROM outputs UNION ALL SELECT failure FROM sources")
    assert "***" in str(found)
    assert "hunter2" not in str(found)


@given(
    st.recursive(st.none() | st.integers() | st.text(), lambda one: st.lists(one) | st.dictionaries(st.text(), one))
)
def test_what_is_kept_has_the_form_of_what_was_given(value: Any) -> None:
    found = kept(value, Redaction(["hunter2"]))
    assert json.loads(json.dumps(found)) == found
    assert type(found) is type(value)
    assert not isinstance(value, list | dict) or len(found) == len(value)


def test_a_long_text_is_cut(store: Store, lease: Lease, raw: str) -> None:
    error = BatchFunctionFailed(function="f", output=raw, error="x" * 50_000, epoch=1)
    store.record_output_failure(lease, raw, 1, error)
    failure = store.load("shop").outputs[raw].failure
    assert failure is not None
    assert failure[1].evidence["error"] == "x" * LONGEST + "..."
