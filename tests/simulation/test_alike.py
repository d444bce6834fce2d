"""A factory has to return the same flow each time. What differs is told in words, whichever time it is."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidegauge as tg
from tidegauge.cli.load import flow_maker
from tidegauge.errors.flow import EmptyFlow
from tidegauge.errors.simulation import FactoryBroke, FlowsDiffer
from tidegauge.testing.simulation import simulate
from tidegauge.testing.simulation.alike import difference

Function = Callable[[pa.RecordBatch], pa.RecordBatch]


def cut(batch: pa.RecordBatch, by: float) -> pa.RecordBatch:
    return batch.slice(int(by))


class Cutting:
    def __init__(self, by: float) -> None:
        self.by = by

    def cut(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return cut(batch, self.by)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return cut(batch, self.by)


def closed(by: float) -> Function:
    kept: set[str] = {"a", "b"}
    return lambda batch: cut(batch, by if kept else 0)


def nested(by: float) -> Function:
    inner = closed(by)
    return lambda batch: inner(batch)


def of(step: Function, *, condition: str = "id > 0", rate: float = 1.0, **options: Any) -> tg.Dataflow:
    flow = tg.Dataflow("shop", store="sqlite:///shop.db", **options)
    orders = flow.source("orders", tg.GeneratorSource(columns="id long", rate=rate))
    flow.sink("lake", orders.filter(condition).map_batches(step), tg.ParquetSink("lake"))
    return flow


WAYS: dict[str, Callable[[float], Function]] = {
    "a closure": closed,
    "a function in a closure": nested,
    "an argument of a partial": lambda by: partial(cut, by=by),
    "an attribute": Cutting,
    "a method's object": lambda by: Cutting(by).cut,
}


@pytest.mark.parametrize("way", WAYS)
def test_a_function_is_told_from_one_that_was_made_with_other_values(way: str) -> None:
    make = WAYS[way]
    assert difference(of(make(1)).spec, of(make(1)).spec) is None
    assert difference(of(make(float("nan"))).spec, of(make(float("nan"))).spec) is None
    found = difference(of(make(1)).spec, of(make(2)).spec)
    assert found is not None
    assert found.endswith("of output 'lake' is 1, then 2")


def test_what_differs_is_named() -> None:
    flow = of(closed(1)).spec
    for other, said in (
        (of(closed(1), condition="id > 1"), "step 1 of output 'lake' is filter('id > 0'), then filter('id > 1')"),
        (of(closed(1), rate=2.0), "'rate' of source 'orders' is 1.0, then 2.0"),
        (of(closed(1), tick=9.0), "the tick is Every"),
        (of(nested(1)), "step 2 of output 'lake' is map_batches(closed.<locals>.<lambda>), then map_batches(nested"),
    ):
        assert (difference(flow, other.spec) or "").startswith(said)


def test_a_function_whose_code_was_changed_is_another() -> None:
    def named(text: str) -> Any:
        made: dict[str, Any] = {}
        exec(f"def step(batch):\n    return {text}", made)
        return made["step"]

    assert difference(of(named("batch")).spec, of(named("batch")).spec) is None
    assert "the code of step" in str(difference(of(named("batch")).spec, of(named("batch.slice(1)")).spec))


FILE = """
import tidegauge as tg

LARGE = {"a", "b", "c"}

def step(batch):
    return batch.slice(0) if "a" in LARGE or 0.5 in {0.5, float("nan")} else batch

def make_flow():
    flow = tg.Dataflow("shop", store="sqlite:///shop.db")
    orders = flow.source("orders", tg.GeneratorSource(columns="id long"))
    flow.sink("lake", orders.map_batches(step).map_batches(lambda batch: step(batch)), tg.ParquetSink("lake"))
    return flow
"""


def test_a_file_that_is_loaded_anew_makes_the_same_flow(tmp_path: Path) -> None:
    (path := tmp_path / "anew.py").write_text(FILE)
    make = flow_maker(path)
    assert difference(make().spec, make().spec) is None


def calls(after: int, then: Callable[[], tg.Dataflow]) -> Callable[[], tg.Dataflow]:
    """Return a factory that does something else after some calls."""
    made: list[int] = []

    def make() -> tg.Dataflow:
        made.append(0)
        return then() if len(made) > after else of(closed(1))

    return make


@pytest.mark.parametrize("after", [2, 7, 20])
def test_a_factory_that_returns_another_flow_after_some_calls_is_found(after: int) -> None:
    """The first two calls are compared before all worlds, some are for trying functions, others are in worlds."""
    with pytest.raises(FlowsDiffer, match=r"'by' in .* is 1, then 2") as raised:
        simulate(calls(after, lambda: of(closed(2))), seeds=range(20), epochs=5)
    assert "make" in raised.value.evidence["factory"]


def test_a_factory_that_raises_after_some_calls_is_told_as_it_is() -> None:
    def broken() -> tg.Dataflow:
        raise FileNotFoundError("shop.toml")

    with pytest.raises(FactoryBroke, match=r"shop\.toml"):
        simulate(calls(20, broken), seeds=range(20), epochs=5)


def test_a_flow_without_an_output_is_refused_as_a_run_refuses_it() -> None:
    with pytest.raises(EmptyFlow, match="'shop' has no output"):
        simulate(lambda: tg.Dataflow("shop", store="sqlite:///shop.db"))
