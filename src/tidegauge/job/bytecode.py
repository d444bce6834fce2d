"""What a Python function does, as a text: one text for one code, wherever, whenever and however that was loaded.

Counts: the instructions, with the names and constants that they use; the functions of the same module that it calls,
each with all of this; and the plain values (numbers, texts, and tuples of them) that it was made with or refers to,
unless it binds them anew itself. Does not count: where the code stands, its file, its module, its lines, comments,
docstrings, annotations of its arguments, and the names of functions and of local variables.

Of a function of another module, of a class and of anything that is not made in Python the name counts alone, so
neither a new version of a library nor what happens inside of it is seen. Of any other object nothing is.

Invariant: the text holds no address and no order of a set, so it is the same in every process of one Python.

>>> def above(limit):
...     return lambda batch: batch.slice(limit)  # a comment
>>> described(above(1)) == described(above(1)), described(above(1)).code == described(above(2)).code
(True, True)
>>> described(above(1)).values, described(above(2)).values
({'limit': '1'}, {'limit': '2'})
>>> described(lambda batch: batch.slice(1)).code == described(lambda rows: rows.slice(1)).code
True
>>> described(lambda batch: batch.slice(1)).code == described(lambda batch: batch.slice(2)).code
False
"""

from __future__ import annotations

import dis
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from decimal import Decimal
from functools import partial
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR, CO_VARARGS, CO_VARKEYWORDS
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final

__all__ = ["Described", "described"]

_PLAIN: Final = (str, bytes, int, float, complex, Decimal, type(None))
_KINDS: Final = CO_VARARGS | CO_VARKEYWORDS | CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR
_UNTOLD: Final = ("NOP", "CACHE", "RESUME", "EXTENDED_ARG", "MAKE_CELL")
"""What the compiler puts in for lines, for speed, or in the order of names."""
_ABOUT_ITSELF: Final = ("__doc__", "__module__", "__qualname__", "__firstlineno__")
"""What the code of a class says of the place where it stands."""
_PAIR: Final = re.compile("(LOAD_FAST|STORE_FAST)_(LOAD_FAST|STORE_FAST)")
"""Two instructions in one, which the compiler makes of those that stand in one line."""
_BINDS: Final = ("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_DEREF", "DELETE_DEREF")


@dataclass(frozen=True, slots=True)
class Described:
    """What a function does: its code, and by name the plain values that this refers to."""

    code: str
    values: Mapping[str, str]


def described(function: Callable[..., Any]) -> Described:
    """Return what a function does."""
    reader = _Reader(_home(function))
    reader.follow(function)
    return Described("\n".join(reader.lines), {n: v for n, v in reader.values.items() if n not in reader.bound})


@dataclass(slots=True)
class _Reader:
    """Reads the functions of one module. seen: those that had their turn, in that order, kept alive."""

    home: str
    lines: list[str] = field(default_factory=list)
    values: dict[str, str] = field(default_factory=dict)
    bound: set[str] = field(default_factory=set)
    seen: dict[int, tuple[int, Any]] = field(default_factory=dict)

    def follow(self, function: Any) -> str:
        """Take in a function unless that was done; return what it is called in what refers to it."""
        if id(function) in self.seen:
            return f"function {self.seen[id(function)][0]}"
        wrapped = getattr(function, "__wrapped__", None)
        if isinstance(function, FunctionType) and function.__globals__.get("__name__") != self.home:
            return self.follow(wrapped) if callable(wrapped) else f"{function.__module__}.{function.__qualname__}"
        number = len(self.seen)
        self.seen[id(function)] = number, function
        match function:
            case FunctionType():
                self._function(function)
            case MethodType():
                self._made(function.__self__)
                self.lines.append(self.follow(function.__func__))
            case partial():
                self._values({f"argument {n}": value for n, value in enumerate(function.args, 1)})
                self._values(function.keywords)
                self.lines.append(self.follow(function.func))
            case _ if isinstance(type(function).__call__, FunctionType):
                self._made(function)
                self.lines.append(self.follow(type(function).__call__))
            case _:
                self.lines.append(str(getattr(function, "__qualname__", type(function).__qualname__)))
        return f"function {number}"

    def _function(self, function: FunctionType) -> None:
        code = function.__code__
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            try:
                self._values({name: cell.cell_contents})
            except ValueError:  # it has none yet
                continue
        self._values({f"default {n}": value for n, value in enumerate(function.__defaults__ or (), 1)})
        self._values(function.__kwdefaults__ or {})
        self.lines += [*self._code(code, function.__globals__)]

    def _made(self, made: Any) -> None:
        """Take in what an object was made with that does not change."""
        if is_dataclass(made) and getattr(type(made), "__dataclass_params__").frozen:  # noqa: B009
            self._values({one.name: getattr(made, one.name, None) for one in fields(made)})

    def _values(self, found: Mapping[str, Any]) -> None:
        for name, value in found.items():
            if isinstance(value, FunctionType | MethodType | partial):
                self.lines.append(f"{name} is {self.follow(value)}")
            elif _plain(value):
                text, number = _constant(value), 1
                while self.values.get(f"{name} {number}" if number > 1 else name, text) != text:
                    number += 1
                self.values[f"{name} {number}" if number > 1 else name] = text

    def _code(self, code: CodeType, around: Mapping[str, Any]) -> Iterator[str]:
        """Yield what a code does. around: the globals of its function."""
        yield f"{code.co_argcount} {code.co_posonlyargcount} {code.co_kwonlyargcount} {code.co_flags & _KINDS}"
        read = dis.Bytecode(code)
        told = [one for one in read if one.opname not in _UNTOLD]
        offsets = [one.offset for one in told for _ in range(2 if _PAIR.fullmatch(one.opname) else 1)]
        for one, following in zip(told, [*told[1:], None], strict=True):
            if one.opname in _BINDS:
                self.bound.add(one.argval)
            if following is not None and following.opname == "STORE_NAME" and following.argval in _ABOUT_ITSELF:
                yield one.opname
            elif isinstance(one.argval, CodeType):
                yield f"{one.opname} (\n" + "\n".join(self._code(one.argval, around)) + "\n)"
            elif (pair := _PAIR.fullmatch(one.opname)) and one.arg is not None:
                yield f"{pair[1]} {one.arg >> 4}\n{pair[2]} {one.arg & 15}"
            elif one.opcode in dis.hasconst:
                yield f"{one.opname} {_constant(one.argval)}"
            elif one.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                yield f"{one.opname} {self._named(one.argval, around)}"
            elif one.opcode in dis.hasjrel or one.opcode in dis.hasjabs:
                yield f"{one.opname} to {bisect_left(offsets, one.argval)}"
            elif one.opcode in dis.hasname or one.opcode in dis.hasfree:
                yield f"{one.opname} {one.argval}"
            else:
                yield f"{one.opname} {one.arg}"
        for entry in getattr(read, "exception_entries", ()):
            ends = [bisect_left(offsets, at) for at in (entry.start, entry.end, entry.target)]
            yield f"except {ends} {entry.depth} {entry.lasti}"

    def _named(self, name: str, around: Mapping[str, Any]) -> str:
        """Return what a global is called, which follows it if that is a function of the same module."""
        value = around.get(name)
        if isinstance(value, ModuleType):
            return value.__name__
        if isinstance(value, FunctionType | MethodType | partial):
            return self.follow(value)
        self._values({name: value} if name in around else {})
        return name


def _home(function: Any) -> str:
    """Return the name of the module whose code a function is; "" of a builtin."""
    while isinstance(function, partial | MethodType):
        function = function.func if isinstance(function, partial) else function.__func__
    if not isinstance(function, FunctionType):
        function = type(function).__call__
    while isinstance(wrapped := getattr(function, "__wrapped__", None), FunctionType):
        function = wrapped
    return str(getattr(function, "__globals__", {}).get("__name__", ""))


def _plain(value: Any) -> bool:
    if isinstance(value, tuple | frozenset):
        return all(map(_plain, value))
    return isinstance(value, _PLAIN)


def _constant(value: Any) -> str:
    """Return a constant as text. The order of a set is another one in each process."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_constant, value))})"
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(map(_constant, value)))}}}"
    return repr(value)
