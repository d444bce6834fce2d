"""The way past SQLAlchemy for the statements of a tick: compiled once, and given to the driver as they are.

To execute a statement takes SQLAlchemy longer than it takes SQLite. So what every epoch needs goes in two parcels:
the question whether the lease holds, and what is written.

Invariant: a parcel does what its statements would do one by one, in the same transaction, and fails with the same
errors. Only its last statement answers.

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

__all__ = ["SENDER", "Command", "Deliver", "Parcel", "Sender", "send"]

Command: TypeAlias = tuple[Executable, Sequence[Mapping[str, Any]]]
"""A statement, and at least one set of its parameters. All sets of a command have the same names."""

Parcel: TypeAlias = Sequence[tuple[str, Sequence[Any]]]
"""Texts as the driver takes them, each with the sets of its parameters as the driver takes them."""

Deliver: TypeAlias = Callable[[Connection, Parcel], Sequence[tuple[Any, ...]]]
"""What a database does with a parcel: it executes it, and returns the rows of its last statement."""

SENDER: Final = "tidegauge_sender"
"""The execution option that has a connection's `Sender`."""


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
