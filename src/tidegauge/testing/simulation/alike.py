"""Whether two flows are alike: the first thing that they say of themselves in two ways.

A function is its code, and the plain values that it was made with: numbers, texts, times, and functions again. Of
other objects nobody can say whether they are equal, so they are taken for equal.

Invariant: two flows that a factory made of the same values are alike, also if it loaded its code anew.

>>> import tidegauge as tg
>>> def shop(least):
...     flow = tg.Dataflow("shop", store="sqlite:///shop.db")
...     orders = flow.source("orders", tg.GeneratorSource(columns="id long"))
...     flow.sink("lake", orders.map_batches(lambda batch: batch.slice(least)), tg.ParquetSink("lake"))
...     return flow.spec
>>> difference(shop(1), shop(1))
>>> difference(shop(1), shop(2))
"'least' in map_batches(shop.<locals>.<lambda>) of output 'lake' is 1, then 2"
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any, Final, TypeAlias

from tidegauge.engine.spelling import written_as
from tidegauge.flow.spec import FlowSpec
from tidegauge.job.plan import MapBatches, OutputPlan, Step, Transform

__all__ = ["difference"]

_PLAIN: Final = (str, bytes, int, float, complex, Decimal, date, datetime, time, timedelta, type(None))
_NOTHING: Final = ("nothing", None)

_Said: TypeAlias = "tuple[str, tuple[str, object]]"
"""A name, then its value: as text for people, and as something to compare."""


def difference(one: FlowSpec, other: FlowSpec) -> str | None:
    """Return in words what two flows say first in two ways; None for flows that are alike."""
    here, there = dict(_flow(one)), dict(_flow(other))
    for about in {**here, **there}:
        (text, exact), (other_text, other_exact) = here.get(about, _NOTHING), there.get(about, _NOTHING)
        if exact != other_exact:
            return f"{about} is {text}, then {other_text}"
    return None


def _flow(flow: FlowSpec) -> Iterator[_Said]:
    yield _value("the flow's name", flow.name)
    yield _value("the tick", flow.policy)
    yield _value("the list of sources", sorted(flow.sources))
    yield _value("the list of outputs", sorted(flow.outputs))
    for name, source in flow.sources.items():
        yield _value(f"source {name!r}", type(source).__qualname__)
        for option, value in source.describe().items():
            yield _value(f"{option!r} of source {name!r}", value)
    for name, plan in flow.outputs.items():
        yield from _output(name, plan)


def _output(name: str, plan: OutputPlan) -> Iterator[_Said]:
    yield _value(f"output {name!r}", type(plan.sink).__qualname__)
    yield _value(f"the source of output {name!r}", plan.source)
    yield _value(f"the channel of output {name!r}", plan.channel)
    for option, value in plan.sink.describe().items():
        yield _value(f"{option!r} of output {name!r}", value)
    for number, step in enumerate(plan.steps, 1):
        text = _step(step)
        yield f"step {number} of output {name!r}", (text, text)
        if isinstance(step, MapBatches | Transform):
            yield from _function(step.function, f"{text} of output {name!r}", {})


def _step(step: Step) -> str:
    declared = step.schema if isinstance(step, MapBatches) else None
    return written_as(step) + ("" if declared is None else f" to {declared.names}")


def _function(function: Any, where: str, seen: dict[int, Any]) -> Iterator[_Said]:
    """Yield what a function is made of, and each function in it. seen: keeps those that had their turn."""
    if id(function) in seen:
        return
    seen[id(function)] = function
    match function:
        case FunctionType():
            code = function.__code__
            yield f"the code of {function.__name__} in {where}", (f"that of line {code.co_firstlineno}", _code(code))
            around = zip(code.co_freevars, function.__closure__ or (), strict=True)
            made_with = {name: cell.cell_contents for name, cell in around if cell != CellType()}
            made_with |= {f"default {n}": value for n, value in enumerate(function.__defaults__ or (), 1)}
            made_with |= function.__kwdefaults__ or {}
        case MethodType():
            made_with = {**getattr(function.__self__, "__dict__", {}), function.__name__: function.__func__}
        case partial():
            made_with = {f"argument {n}": value for n, value in enumerate(function.args, 1)} | function.keywords
            made_with["the function"] = function.func
        case _:
            made_with = {**getattr(function, "__dict__", {}), "__call__": type(function).__call__}
    for name, value in made_with.items():
        if isinstance(value, FunctionType | MethodType | partial):
            yield from _function(value, where, seen)
        elif isinstance(value, _PLAIN):
            yield _value(f"{name!r} in {where}", value)


def _code(code: CodeType) -> object:
    """Return what a code does, wherever it is."""
    inner = tuple(_code(one) if isinstance(one, CodeType) else one for one in code.co_consts)
    return code.co_code, code.co_names, inner


def _value(about: str, value: object) -> _Said:
    return about, (repr(value), repr(value))  # of two NaNs, too, this is the same
