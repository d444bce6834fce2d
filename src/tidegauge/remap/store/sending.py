"""Statements are compiled once: those of all stores of a kind, and those of a tick, given straight to the driver.

SQLAlchemy keeps what it has compiled for as long as an engine lives. A flow opens its store for each run and for each
look at it; compiling the same statements each time took longer than running them. And executing a statement takes
SQLAlchemy longer than it takes SQLite. So what every epoch needs goes past it in two parcels: the question whether
the lease holds, and the rows to write.

Invariants. A compiled statement depends on the statement and on the class of the dialect alone: all engines of a
class are made in one place, with the same options, so they would compile it alike. A parcel does what its statements
would do one by one, in the same transaction, and fails with the same errors; only its last statement answers.

>>> import tempfile
>>> from sqlalchemy import bindparam, literal, select
>>> from tidegauge.remap.store.connect import Database
>>> folder = tempfile.TemporaryDirectory()
>>> database = Database(f"sqlite:///{folder.name}/shop.db")
>>> double = select(2 * bindparam("n", type_=literal(0).type))
>>> database.write(lambda connection: send(connection, (double, [{"n": 1}]), (double, [{"n": 21}])))
[(42,)]
>>> database.close(); folder.cleanup()
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from sqlalchemy import Connection, Dialect, Executable
from sqlalchemy.sql.compiler import SQLCompiler

__all__ = ["COMPILED", "ROOM", "SENDER", "Command", "CompiledStatements", "Deliver", "Parcel", "Sender", "send"]

ROOM: Final = 1000
"""Statements that are kept: several times as many as the store has."""

Command: TypeAlias = tuple[Executable, Sequence[Mapping[str, Any]]]
"""A statement, and at least one set of its parameters. All sets of a command have the same names."""

Parcel: TypeAlias = Sequence[tuple[str, Sequence[Any]]]
"""Texts as the driver takes them, each with the sets of its parameters as the driver takes them."""

Deliver: TypeAlias = Callable[[Connection, Parcel], Sequence[tuple[Any, ...]]]
"""What a database does with a parcel: it executes it, and returns the rows of its last statement."""

SENDER: Final = "tidegauge_sender"
"""The execution option that has a connection's `Sender`."""


class CompiledStatements(dict[Any, Any]):
    """What SQLAlchemy takes for the cache of one engine, and asks by `get`; it is that of many.

    >>> from sqlalchemy.dialects import sqlite
    >>> known = CompiledStatements()
    >>> known[sqlite.dialect(), "SELECT"] = "compiled"
    >>> known.get((sqlite.dialect(), "SELECT"))
    'compiled'
    """

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
    return tuple([type(part) if isinstance(part, Dialect) else part for part in key])


def send(connection: Connection, *commands: Command) -> Sequence[tuple[Any, ...]]:
    """Execute the commands in their order and return the rows of the last one, none if it brings none."""
    sender: Sender = connection.get_execution_options()[SENDER]
    return sender.send(connection, commands)


class Sender:
    """Keeps the texts of one database's statements. Statements are told apart by their identity: make them once."""

    def __init__(self, deliver: Deliver) -> None:
        self._deliver: Final = deliver
        self._forms: Final[dict[tuple[Executable, tuple[str, ...]], _Form]] = {}

    def send(self, connection: Connection, commands: Sequence[Command]) -> Sequence[tuple[Any, ...]]:
        """See `send`."""
        parcel = []
        for statement, sets in commands:
            key = statement, tuple(sets[0])
            form = self._forms.get(key)
            if form is None:
                form = self._forms[key] = _Form(statement, key[1], connection.dialect)
            parcel.append((form.text, [form.fill(given) for given in sets]))
        return self._deliver(connection, parcel)


class _Form:
    """The text of a statement in a dialect, and how its parameters are put to it: by place or by name."""

    def __init__(self, statement: Executable, names: Sequence[str], dialect: Dialect) -> None:
        compiled: SQLCompiler = statement.compile(dialect=dialect, column_keys=list(names))  # type: ignore[attr-defined]
        self.text: Final = str(compiled)
        self._places: Final = compiled.positiontup
        self._values: Final = dict(compiled.params)  # constants of the statement, and None for what is to be given
        kinds = {name: bind.type.dialect_impl(dialect) for name, bind in compiled.binds.items()}
        converted = {name: kind.bind_processor(dialect) for name, kind in kinds.items()}
        self._converters: Final = [(name, convert) for name, convert in converted.items() if convert is not None]

    def fill(self, given: Mapping[str, Any]) -> Any:
        """Return the parameters as the driver takes them."""
        values = {**self._values, **given}
        for name, convert in self._converters:
            values[name] = convert(values[name])
        return values if self._places is None else [values[name] for name in self._places]
