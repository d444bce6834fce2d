"""Which code makes an output's rows, as a value that outlives its process, and what of it has changed.

It has a part for the stream that is read, one for each step, and one for each value that a function of a step was
made with. A part is kept as a digest: nobody's code or secret is in it. What Python has compiled can be compared in
the same minor version of Python alone; in another one it counts as equal.

Invariant: code that `described` and the columns of its steps cannot tell apart is equal here, and equal code makes
equal digests in every process.

>>> from tidegauge.job.plan import Filter
>>> def of(*steps):
...     return code_of(OutputPlan("large", "orders", "rows", steps, sink=None))
>>> changes(of(Filter("n > 1")), of(Filter("n > 2")))
('step 1 (filter) is another',)
>>> changes(of(Filter("n  > 1")), of(Filter("n > 1"), MapBatches(lambda batch: batch)))
('step 2 (map_batches) is new', 'the function of step 2 (map_batches) is new')
>>> def first(rows):
...     return MapBatches(lambda batch: batch[:rows])
>>> changes(of(first(1)), of(first(1))), changes(of(first(1)), of(first(2)))
((), ("'rows' in step 1 (map_batches) is another",))
>>> OutputCode.decode(of(first(1)).encode()) == of(first(1))
True
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import MAGIC_NUMBER
from typing import Any, Final

from tidegauge.job.bytecode import described
from tidegauge.job.plan import (
    WORDS,
    Changelog,
    Dedupe,
    Filter,
    MapBatches,
    OutputPlan,
    Partition,
    Select,
    SplitBy,
    Step,
    Transform,
    Unnest,
)

__all__ = ["RUNTIME", "CodePart", "OutputCode", "changes", "code_of", "comparable", "giving_columns"]

RUNTIME: Final = f"{sys.implementation.cache_tag}-{MAGIC_NUMBER.hex()}-{sys.flags.optimize}"
"""Two processes that say the same here compile a function to the same instructions."""

_COLUMNAR: Final = re.compile(r"step \d+ \((select|transform|map_batches)\)$")
"""The steps that give rows other columns. Whether a function drops rows, only its author knows."""
_VERBATIM: Final = ("'", '"', "`", "--", "/*")
"""What SQL is not looked into behind: white space may count there."""


@dataclass(frozen=True, slots=True)
class CodePart:
    """A part of an output's code. compiled: whether it is compared within one `runtime` alone."""

    about: str
    digest: str
    compiled: bool


@dataclass(frozen=True, slots=True)
class OutputCode:
    """Which code makes an output's rows. runtime: what compiled it."""

    runtime: str
    parts: tuple[CodePart, ...]

    def encode(self) -> str:
        """Return the code as JSON text."""
        return json.dumps([self.runtime, [[p.about, p.digest, p.compiled] for p in self.parts]])

    @staticmethod
    def decode(text: str) -> OutputCode | None:
        """Return what `encode` wrote; None for what another version may have written."""
        try:
            runtime, parts = json.loads(text)
            return OutputCode(str(runtime), tuple(CodePart(str(a), str(d), bool(c)) for a, d, c in parts))
        except (TypeError, ValueError):
            return None


def code_of(plan: OutputPlan) -> OutputCode:
    """Return the code that makes an output's rows."""
    return OutputCode(RUNTIME, tuple(_parts(plan)))


def comparable(before: OutputCode, now: OutputCode) -> bool:
    """Whether every part of two codes can be compared."""
    return before.runtime == now.runtime


def changes(before: OutputCode, now: OutputCode) -> tuple[str, ...]:
    """Return in words which parts of an output's code are others, gone or new, as far as that can be known."""
    alike = comparable(before, now)
    old = {part.about: part.digest for part in before.parts if alike or not part.compiled}
    new = {part.about: part.digest for part in now.parts if alike or not part.compiled}
    found = [f"{about} is {'new' if about not in old else 'gone' if about not in new else 'another'}"
             for about in {**new, **old} if old.get(about) != new.get(about)]  # fmt: skip
    return tuple(found)


def giving_columns(before: OutputCode, now: OutputCode) -> bool:
    """Whether the steps that changed between two codes all say which columns rows have: no row comes or goes by them.

    >>> narrow, wide = OutputPlan("a", "s", "rows", (), sink=None), OutputPlan("a", "s", "rows", (), sink=None)
    >>> from dataclasses import replace
    >>> from tidegauge.job.plan import Filter
    >>> wide, less = replace(wide, steps=(Select(("n", "2 * n AS m")),)), replace(wide, steps=(Filter("n > 1"),))
    >>> giving_columns(code_of(narrow), code_of(wide)), giving_columns(code_of(narrow), code_of(less))
    (True, False)
    """
    old, new = ({part.about: part.digest for part in code.parts} for code in (before, now))
    differing = [about for about in {**old, **new} if old.get(about) != new.get(about)]
    return all(_COLUMNAR.search(about) for about in differing)


def _parts(plan: OutputPlan) -> Iterator[CodePart]:
    yield _part("the stream that it reads", f"{plan.source} {plan.channel}")
    for number, step in enumerate(plan.steps, 1):
        about = f"step {number} ({WORDS[type(step)]})"
        yield _part(about, _said(step))
        if isinstance(step, MapBatches | Transform):
            function = described(step.function)
            yield _part(f"the function of {about}", function.code, compiled=True)
            for name, value in sorted(function.values.items()):
                yield _part(f"'{name}' in {about}", value, compiled=True)


def _part(about: str, text: str, *, compiled: bool = False) -> CodePart:
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return CodePart(about, digest, compiled)


def _said(step: Step) -> str:
    match step:
        case Filter(condition):
            return _spelt(condition)
        case Select(expressions):
            return "\n".join(map(_spelt, expressions))
        case Changelog(column) | Unnest(column):
            return column
        case Dedupe(key):
            return repr(key)
        case Partition(parts, key, part):
            return repr((parts, key, part))
        case SplitBy(column, values, value):
            return repr((column, values, value))
        case MapBatches(_, schema) if schema is not None:
            return "\n".join(f"{one.name} {one.type} {one.nullable}" for one in schema)
        case _:
            return ""


def _spelt(sql: Any) -> str:
    """Return an expression with single spaces, where white space cannot count."""
    return sql if any(mark in sql for mark in _VERBATIM) else " ".join(sql.split())
