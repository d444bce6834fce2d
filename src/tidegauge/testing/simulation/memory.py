"""What a function keeps between its calls: variables around it, attributes, and those of the functions that it calls.

Invariant: a function that is not called keeps the same.

>>> seen = []
>>> def count(batch):
...     seen.append(batch)
>>> before = kept(count)
>>> count(7)
>>> changed(before, kept(count))
['seen']
"""

from __future__ import annotations

import pickle  # to compare what is in this process; nothing is read back
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

__all__ = ["changed", "kept"]


def kept(function: Callable[..., Any]) -> dict[str, object]:
    """Return what a function keeps, by name, as something that differs once it changes."""
    found: dict[str, object] = {}
    _walk(function, getattr(function, "__name__", "self"), found, set())
    return found


def changed(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    """Return the names of what differs."""
    return sorted(name for name in {*before, *after} if before.get(name) != after.get(name))


def _walk(thing: Any, name: str, found: dict[str, object], seen: set[int]) -> None:
    if id(thing) in seen or isinstance(thing, ModuleType | type | BuiltinFunctionType | Random):
        return  # a generator of random numbers is chance, not memory
    seen.add(id(thing))
    match thing:
        case FunctionType():
            for inner, value in {**_around(thing), **vars(thing)}.items():
                _walk(value, inner, found, seen)
            for value in (*(thing.__defaults__ or ()), *(thing.__kwdefaults__ or {}).values()):
                _walk(value, f"a default of {name}", found, seen)
        case MethodType():
            _walk(thing.__func__, name, found, seen)
            _walk(thing.__self__, "self", found, seen)
        case partial():
            for value in (thing.func, *thing.args, *thing.keywords.values()):
                _walk(value, name, found, seen)
        case _ if type(thing).__module__.startswith("numpy.random"):
            return
        case _ if callable(thing):
            for inner, value in getattr(thing, "__dict__", {}).items():
                _walk(value, inner, found, seen)
            _walk(type(thing).__call__, name, found, seen)
        case _:
            found[name] = _state(thing)


def _around(function: FunctionType) -> dict[str, Any]:
    """Return the variables of others that a function names, those of functions within it included."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    shared = {name: cell.cell_contents for name, cell in cells if cell != CellType()}
    names = [name for name in _names(function.__code__) if name in function.__globals__]
    return {**{name: function.__globals__[name] for name in names}, **shared}


def _names(code: CodeType) -> list[str]:
    inner = [name for one in code.co_consts if isinstance(one, CodeType) for name in _names(one)]
    return [*code.co_names, *inner]


def _state(thing: Any) -> object:
    try:
        return pickle.dumps(thing)
    except Exception:  # noqa: BLE001 - whatever it is, it can be shown
        return repr(getattr(thing, "__dict__", thing))
