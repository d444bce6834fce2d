"""Columns and selections, spelt in SQL.

>>> quoted("a `b`"), packed(["id", "_epoch", "user"], "row")
('`a ``b```', 'struct(`id`, `user`, _epoch) AS row')
>>> chosen(("*", "id + 1 AS next", "_epoch"), ["id", "user"])
['`id`', '`user`', 'id + 1 AS next']
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from tidegauge.job.functions import INTERNAL
from tidegauge.reclock.columns import EPOCH

__all__ = ["ROW", "chosen", "packed", "quoted"]

ROW: Final = INTERNAL + "row"
"""The struct column that holds the rows while their steps are analysed, and on their way to an Arrow function."""
_EPOCH_ALONE: Final = re.compile(r"\s*`?_epoch`?\s*", re.IGNORECASE)


def quoted(name: str) -> str:
    """Return a name as SQL has it."""
    return "`" + name.replace("`", "``") + "`"


def packed(columns: Sequence[str], name: str) -> str:
    """Return the SQL that makes one struct of columns, `_epoch` last."""
    user = [quoted(column) for column in columns if column != EPOCH.name]
    return f"struct({', '.join([*user, EPOCH.name])}) AS {name}"


def chosen(expressions: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return the expressions with `*` written out and without mentions of `_epoch`, which stays anyway."""
    found: list[str] = []
    for expression in expressions:
        if expression.strip() == "*":
            found += map(quoted, known)
        elif _EPOCH_ALONE.fullmatch(expression) is None:
            found.append(expression)
    return found
