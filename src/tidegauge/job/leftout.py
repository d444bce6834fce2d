"""Which outputs take rows that leave a value out, and how these name the columns: a pure decision about plans.

An output *shows* columns where its steps do no more than choose and rename them: then a value that is left out stays
known as one, whatever its name. Where such an output does not have the column, the row lacks nothing. Where it has,
its table has to fill it in: a table by key (`FillingIn`), by the same key as the rows come by, in their own order.

Invariant: the decision depends on the plan and the row alone, never on the other outputs.

>>> from tidegauge.job.plan import Filter, Select
>>> columns = pa.schema([("id", pa.int64()), ("doc", pa.string()), ("_op", pa.string())])
>>> shown((Select(("id", "doc AS text")),), columns)
{'id': 'id', 'text': 'doc', '_op': '_op'}
>>> shown((Filter("doc IS NULL"),), columns) is None
True
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from tidegauge.errors.leftout import LeftOutHere
from tidegauge.job.plan import Changelog, OutputPlan, Select, Step
from tidegauge.leftout import FillingIn, Mark, translated
from tidegauge.operations import OP

__all__ = ["STEPS", "Carried", "carried_by", "refused", "shown"]

_SEQUENCE: Final = "_sequence"
_NAME: Final = re.compile(r"\s*(\w+|`[^`]+`)(?:\s+as\s+(\w+|`[^`]+`))?\s*", re.IGNORECASE)
STEPS: Final = "its steps do more than choose columns"
"""Why an output does not take rows that leave values out."""
_TABLE: Final = "it keeps no table by key"


def shown(steps: Sequence[Step], columns: pa.Schema) -> Mapping[str, str] | None:
    """Return what the columns of an output are called in its stream; None where its steps do more than choose."""
    names = {name: name for name in columns.names}
    for step in steps:
        if isinstance(step, Changelog):
            names = {(step.column if name == OP else name): of for name, of in names.items()}
        elif isinstance(step, Select):
            chosen = dict[str, str]()
            for text in step.expressions:
                if text.strip() == "*":
                    chosen |= names
                    continue
                found = _NAME.fullmatch(text)
                if found is None or (of := found[1].strip("`")) not in names:
                    return None
                chosen[(found[2] or found[1]).strip("`")] = names[of]
            names = chosen | ({OP: OP} if OP in names else {})
        else:
            return None
    return names


@dataclass(frozen=True, slots=True)
class Carried:
    """How an output takes rows that leave values out.

    names: what its columns are called in the stream, None where that is not said. key: those that its table fills
    them in by, in the stream's names; empty where it does not, and `why`.
    """

    output: str
    names: Mapping[str, str] | None
    key: frozenset[str]
    why: str

    def marks(self, marks: Any, epoch: int) -> Any:
        """Return the marks of rows as the output's columns have it. Raises `LeftOutHere`."""

        def by(mark: Mark) -> Mark:
            if self.names is None:
                raise refused(self.output, mark, epoch, self.why)
            left = tuple(name for name, of in self.names.items() if of in mark.columns)
            if left and self.key != frozenset(mark.key):
                key = ", ".join(mark.key)
                raise refused(self.output, mark, epoch, self.why or f"its key is not that of the changes, {key}")
            return Mark(left, moves=mark.moves)

        return translated(marks, by)


def carried_by(plan: OutputPlan, columns: pa.Schema) -> Carried:
    """Return how an output takes rows of a stream with these columns that leave values out."""
    names = shown(plan.steps, columns)
    if names is None:
        return Carried(plan.name, None, frozenset(), STEPS)
    keeps = plan.sink.keeps if isinstance(plan.sink, FillingIn) else None
    why = ""
    if keeps is None:
        why = _TABLE
    elif keeps.order is not None and names.get(keeps.order) != _SEQUENCE:
        why = f"order={keeps.order!r} is not the order of the changes, {_SEQUENCE}"
    if keeps is None or why:
        return Carried(plan.name, names, frozenset(), why)
    return Carried(plan.name, names, frozenset(names.get(name, name) for name in keeps.key), "")


def refused(output: str, mark: Mark, epoch: int, why: str) -> LeftOutHere:
    """Return the error of a row that an output cannot take."""
    return LeftOutHere(output=output, epoch=epoch, columns=", ".join(map(repr, mark.columns)), why=why)
