"""SQL that is compiled once for all stores of a kind.

SQLAlchemy keeps what it has compiled for as long as an engine lives. A flow opens its store for each run and for each
look at it; compiling the same statements each time took longer than running them.

Invariant: a compiled statement depends on the statement and on the class of the dialect alone. All engines of a class
are made in one place, with the same options, so they would compile it alike. At most `ROOM` statements are kept.

>>> from sqlalchemy.dialects import sqlite
>>> known = CompiledStatements()
>>> known[sqlite.dialect(), "SELECT"] = "compiled"
>>> known.get((sqlite.dialect(), "SELECT"))
'compiled'
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy.engine import Dialect

__all__ = ["COMPILED", "ROOM", "CompiledStatements"]

ROOM: Final = 1000
"""Statements that are kept: several times as many as the store has."""


class CompiledStatements(dict[Any, Any]):
    """What SQLAlchemy takes for the cache of one engine, and asks by `get`; it is that of many."""

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the compiled statement, by whichever engine of the kind."""
        return super().get(_shared(key), default)

    def __setitem__(self, key: Any, compiled: Any) -> None:
        if len(self) >= ROOM:
            self.clear()
        super().__setitem__(_shared(key), compiled)


COMPILED: Final = CompiledStatements()


def _shared(key: Any) -> tuple[Any, ...]:
    """Return a key with the class of the dialect in place of the dialect, which is one engine's own."""
    return tuple(type(part) if isinstance(part, Dialect) else part for part in key)
