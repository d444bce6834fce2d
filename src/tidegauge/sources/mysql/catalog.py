"""What the server says of itself and of tables, and whether they can be followed.

Invariant: what passes can be followed without loss, as far as the server tells; what does not is named with the
statement that puts it right. Nothing is ever changed at the server.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from tidegauge.errors.mysqlsource import BinlogKeyMissing, BinlogServerUnfit, BinlogTableUnfit
from tidegauge.operations import OP
from tidegauge.sources.database.sequence import SEQUENCE
from tidegauge.sources.mysql.servers import ServerKind, kind_of
from tidegauge.sources.mysql.types import arrow_of

__all__ = ["FollowedTable", "ServerLook", "changed", "check_server", "columns_of", "look", "quoted"]

RESERVED: Final = frozenset({OP, SEQUENCE, "_partition", "_offset", "_timestamp", "_epoch"})
_OLDEST: Final = (10, 5)
_MYSQL: Final = re.compile(r"(?:5\.6|8\.0)\.")
"""The versions of MySQL that were tried."""
_FALLS: Final = re.compile(
    r"^\s+CONSTRAINT `((?:[^`]|``)+|.+?)` FOREIGN KEY .*\bON (?:DELETE|UPDATE) (?:CASCADE|SET NULL)\b", re.MULTILINE
)
DENIED: Final = frozenset({1044, 1142, 1143})
"""The server's numbers for a right that is missing on a database, a table or a column."""
_APPLICABLE: Final = (10, 10)
"""From here on another table has the numbers of collations."""
_SERVER: Final = (
    "version",
    "server_id",
    "server_uid",
    "server_uuid",
    "gtid_binlog_pos",
    "gtid_binlog_state",
    "gtid_domain_id",
    "gtid_executed",
    "gtid_purged",
    "gtid_slave_pos",
    "log_slave_updates",
    "lower_case_table_names",
)


@dataclass(frozen=True, slots=True)
class FollowedTable:
    """A table. kind, engine: of the catalog, "" where there is none. columns: name, and what `arrow_of` takes.

    generated: columns that have no place in the log. cascades: foreign keys that change its rows unseen. hidden: the
    user may not read it, there or not."""

    database: str
    name: str
    kind: str
    engine: str
    columns: Sequence[tuple[str, str, str, int | None, int | None, str | None]]
    key: Sequence[str]
    generated: Sequence[str]
    cascades: Sequence[str]
    hidden: bool = False

    def __str__(self) -> str:
        return f"{self.database}.{self.name}"


@dataclass(frozen=True, slots=True)
class ServerLook:
    """What the server says. settings: its variables. charsets: names by the numbers of collations."""

    settings: Mapping[str, str]
    charsets: Mapping[int, str]
    tables: Sequence[FollowedTable]

    @property
    def kind(self) -> ServerKind:
        """The kind of the server."""
        return kind_of(self.settings["version"])

    @property
    def closed(self) -> bool:
        """Whether the server has closed its log, since it could not write it, and goes on without one."""
        return self.settings.get("log_bin") == "1" and not self.settings.get("log_open", "1")


def look(connection: Any, names: Sequence[tuple[str, str]]) -> ServerLook:
    """Look at the server and at tables, each a database and a name."""
    with connection.cursor() as cursor:
        cursor.execute("SHOW GLOBAL VARIABLES")
        there = {_text(name): _text(value) for name, value in cursor.fetchall()}
        named = {"ON": "1", "OFF": "0"}
        cursor.execute("SELECT @@version")
        there["version"] = _text(cursor.fetchone()[0])
        wanted = kind_of(there["version"]).wanted
        settings = {name: named.get(there.get(name, ""), there.get(name, "")) for name in (*_SERVER, *wanted)}
        status: Any = None
        if _supported(settings["version"]):  # others are refused, and may not know this
            cursor.execute("SHOW MASTER STATUS")
            status = cursor.fetchone()
            settings["log_open"] = "" if status is None else "1"
        status = status or (b"", b"", b"", b"")
        settings["filters"] = ", ".join(
            f"{name} = {_text(value)}"
            for name, value in zip(("binlog_do_db", "binlog_ignore_db"), status[2:4], strict=False)
            if value
        )
        cursor.execute("SELECT id, character_set_name FROM information_schema.collations WHERE id IS NOT NULL")
        charsets = {int(number): _text(name) for number, name in cursor.fetchall()}
        if _version(settings["version"]) >= _APPLICABLE:
            cursor.execute(
                "SELECT id, character_set_name FROM information_schema.collation_character_set_applicability"
            )
            charsets.update({int(number): _text(name) for number, name in cursor.fetchall() if number is not None})
        computed = kind_of(settings["version"]).by_sets
        return ServerLook(settings, charsets, [_table(cursor, *one, computed=computed) for one in names])


def _table(cursor: Any, database: str, name: str, *, computed: bool) -> FollowedTable:
    """Look at a table. computed: whether the log has VIRTUAL columns."""
    cursor.execute(
        "SELECT table_type, engine, table_schema, table_name FROM information_schema.tables "
        "WHERE table_schema = %s AND table_name = %s",
        (database, name),
    )
    found = cursor.fetchone() or (b"", b"", b"", b"")
    if (_text(found[2]), _text(found[3])) != (database, name):  # the log has it as it is in the catalog
        found = (b"", b"", b"", b"")
    cursor.execute(
        "SELECT column_name, data_type, column_type, numeric_precision, numeric_scale, character_set_name, "
        "column_key, extra FROM information_schema.columns WHERE table_schema = %s AND table_name = %s "
        "ORDER BY ordinal_position",
        (database, name),
    )
    columns, key, generated = [], [], []
    for column, kind, shown, precision, scale, charset, keyed, extra in cursor.fetchall():
        if not computed and "VIRTUAL GENERATED" in _text(extra):
            generated.append(_text(column))
        if _text(keyed) == "PRI":
            key.append(_text(column))
        numbers = [None if one is None else int(one) for one in (precision, scale)]
        columns.append(
            (_text(column), _text(kind), _text(shown), *numbers, None if charset is None else _text(charset))
        )
    hidden = _hidden(cursor, database, name)
    cascades = _cascades(cursor, database, name) if found[0] == b"BASE TABLE" and not hidden else []
    kind, engine = _text(found[0]), _text(found[1])
    return FollowedTable(database, name, kind, engine, columns, key, generated, cascades, hidden)  # type: ignore[arg-type]


def _cascades(cursor: Any, database: str, name: str) -> list[str]:
    """Return the foreign keys of a table that change its rows.

    The catalog's own list of them (`referential_constraints`) is empty for a user who may only read the table.
    """
    cursor.execute(f"SHOW CREATE TABLE {quoted(database)}.{quoted(name)}")
    return falling(_text(cursor.fetchone()[1]))


def falling(made: str) -> list[str]:
    """Return the foreign keys that change rows of a table, by what makes it. MariaDB 11.4 does not double the ` of a
    name there.

    >>> falls = "FOREIGN KEY (`u`) REFERENCES `t` (`id`) ON DELETE"
    >>> rules = (("a", "RESTRICT"), ("b``c", "CASCADE"), ("d`e", "SET NULL"))
    >>> falling("".join(f"  CONSTRAINT `{name}` {falls} {rule}\\n" for name, rule in rules))
    ['b`c', 'd`e']
    """
    return [found[1].replace("``", "`") for found in _FALLS.finditer(made)]


def _hidden(cursor: Any, database: str, name: str) -> bool:
    """Whether the user may not read a table, there or not. The catalog tells that of no table that is not there."""
    from pymysql.err import MySQLError

    try:
        cursor.execute(f"SELECT 1 FROM {quoted(database)}.{quoted(name)} LIMIT 0")  # noqa: S608 - both are quoted
    except MySQLError as error:
        return bool(error.args) and error.args[0] in DENIED
    return False


def check_server(source: str, found: ServerLook) -> None:
    """Raise `BinlogServerUnfit` for a server whose log does not say enough."""
    version = found.settings["version"]
    if not _supported(version):
        if not found.kind.by_sets:
            raise BinlogServerUnfit(source=source, detail=f"it is {version}", remedy="upgrade it to 10.5, or newer")
        remedy = "only MariaDB, and MySQL 5.6 and 8.0, can be followed at present"
        raise BinlogServerUnfit(source=source, detail=f"it is MySQL {version}", remedy=remedy)
    if found.settings["filters"]:
        detail = f"its log leaves out databases ({found.settings['filters']})"
        raise BinlogServerUnfit(source=source, detail=detail, remedy="start the server without these settings")
    if found.settings.get("gtid_slave_pos") and found.settings.get("log_slave_updates") != "1":
        detail = "it is a replica, or was one, and what comes by replication is not in its log"
        remedy = "start the server with --log-slave-updates (changes until then are missing), or follow its primary"
        raise BinlogServerUnfit(source=source, detail=detail, remedy=remedy)
    for name, (wanted, remedy) in found.kind.wanted.items():
        is_ = found.settings[name]
        if is_ != wanted:
            raise BinlogServerUnfit(source=source, detail=f"its {name} is {is_ or 'not there'!r}", remedy=remedy)
    if found.closed:
        remedy = "put right what its log of errors names, and restart it"
        detail = "it could not write its log, and goes on without"
        raise BinlogServerUnfit(source=source, detail=detail, remedy=remedy)


def _supported(shown: str) -> bool:
    """Whether a version of a server can be followed.

    >>> [_supported(one) for one in ("10.11.19-MariaDB", "10.4.1-MariaDB", "5.6.14-log", "5.7.44", "8.0.36", "8.4.3")]
    [True, False, True, False, True, False]
    """
    if "MariaDB" in shown:
        return _version(shown) >= _OLDEST
    return _MYSQL.match(shown) is not None


def _version(shown: str) -> tuple[int, int]:
    """Return the version of a MariaDB, (0, 0) of another server.

    >>> _version("5.5.5-10.11.19-MariaDB-log"), _version("5.6.14-log")
    ((10, 11), (0, 0))
    """
    numbers = re.match(r"(?:5\.5\.5-)?(\d+)\.(\d+)", shown)
    return (int(numbers[1]), int(numbers[2])) if numbers is not None and "MariaDB" in shown else (0, 0)


def changed(source: str, table: FollowedTable, declared: pa.Schema, *, begun: bool) -> str:
    """Return why a table is not the one that was declared, "" where it is. begun: whether it was followed before.

    Raises `BinlogTableUnfit` where the user may not read it; and `BinlogKeyMissing` if it was not followed before.
    """
    if not (table.kind or table.hidden):
        return "it was dropped, or has another name"
    there = {name for name, *_ in table.columns}
    if not table.hidden and (gone := [name for name in declared.names if name not in there]):
        return f"it has no column {gone[0]!r}"
    try:
        columns_of(source, table, declared.names)
    except (BinlogTableUnfit, BinlogKeyMissing) as error:
        if not begun or table.hidden:
            raise
        return str(error.evidence.get("detail", "it has no primary key"))
    return ""


def columns_of(source: str, table: FollowedTable, only: Sequence[str] | None = None) -> pa.Schema:
    """Return the columns of a table's rows: these only, if any are given. Raises `BinlogTableUnfit`,
    `BinlogKeyMissing`."""

    def unfit(detail: str, remedy: str) -> BinlogTableUnfit:
        return BinlogTableUnfit(table=str(table), source=source, detail=detail, remedy=remedy)

    if table.hidden:
        raise unfit("the user may not read it", f"GRANT SELECT ON {table} TO ... The flow tries again by itself")
    if not table.kind:
        remedy = f"write its name as it is in the catalog, or: GRANT SELECT ON {table} TO ..."
        raise unfit("there is no such table, or the user may not read it", remedy)
    if table.kind != "BASE TABLE":
        raise unfit(f"it is of the kind {table.kind}", "name an ordinary table")
    if table.engine != "InnoDB":
        raise unfit(f"its engine is {table.engine}, which has no transactions", "ALTER TABLE ... ENGINE = InnoDB")
    if table.cascades:
        detail = (
            f"its foreign key {table.cascades[0]!r} changes rows (CASCADE, SET NULL), and the log does not have them"
        )
        raise unfit(detail, "let the application change these rows, and the foreign key RESTRICT")
    if computed := [name for name in table.generated if only is None or name in only]:
        raise unfit(f"its column {computed[0]!r} is computed (VIRTUAL)", "make it PERSISTENT, or drop it")
    if not table.key:
        raise BinlogKeyMissing(table=str(table), source=source)
    found = []
    for name, kind, shown, precision, scale, charset in table.columns:
        if only is not None and name not in only:
            continue
        type_ = arrow_of(kind, shown, precision, scale, charset)
        if type_ is None:
            said = f"{shown} in {charset}" if charset else shown
            raise unfit(f"its column {name!r} is {said}, which is not supported", "take the table out of tables=")
        if name.lower() in RESERVED:
            raise unfit(f"its column {name!r} is called like one that is added to rows", "rename it")
        found.append((name, type_))
    return pa.schema(found)


def quoted(name: str) -> str:
    """Return a name in the quotes of a statement."""
    return "`" + name.replace("`", "``") + "`"


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else "" if value is None else str(value)
