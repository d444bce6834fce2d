"""What a statement in the log means for the tables that are followed: nothing, the end of one, or a change unseen.

Rows are told by other events. A statement is one that changes tables themselves, or one that a session wrote with
settings of its own instead of its rows.

Invariant: a statement that may change rows or columns of a followed table is never passed over. The other way round
one that mentions a table may be refused though it would do no harm.

>>> followed = {("shop", "orders")}
>>> meaning("shop", "ALTER TABLE orders ADD COLUMN note text, ADD INDEX (note)", followed)
>>> meaning("other", "DROP TABLE orders", followed)
>>> meaning("shop", "TRUNCATE `orders`", followed)
Meaning(kind='emptied', table='shop.orders')
>>> meaning("shop", "ALTER TABLE shop.orders DROP COLUMN note", followed)
Meaning(kind='changed', table='shop.orders')
>>> meaning("shop", "SET STATEMENT lock_wait_timeout = 5 FOR TRUNCATE orders", followed)
Meaning(kind='emptied', table='shop.orders')
>>> meaning("shop", "ALTER TABLE orders COMMENT = 'it\\\\'s # one', DROP note", followed)
Meaning(kind='changed', table='shop.orders')
>>> meaning("shop", "UPDATE orders SET n = 1", followed)
Meaning(kind='unseen', table='shop.orders')
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

__all__ = ["Meaning", "meaning"]

_NOISE: Final = re.compile(
    r"""(?P<text>'(?:[^'\\]|\\.|'')*')|(?P<either>"(?:[^"\\]|\\.|"")*")|(?P<name>`(?:[^`]|``)*`)"""
    r"""|/\*(?!M?!).*?\*/|/\*M?!\d*|\*/|(?:--\s|\#)[^\n]*""",
    re.DOTALL,
)
"""Quoted texts and names, comments, and the signs around words that only look like a comment."""
_FIRST: Final = re.compile(r"[A-Za-z]+")
_HARMLESS: Final = re.compile(
    r"ADD\b(?!\s+(SYSTEM|PERIOD)\b)|(DROP|RENAME)\s+(INDEX|KEY|FOREIGN\s+KEY|CONSTRAINT|CHECK)\b|COMMENT\b|AUTO_INCREMENT\b|FORCE\b"
    r"|ENGINE\s*=?\s*InnoDB\b|ROW_FORMAT\b|ALGORITHM\b|LOCK\b|ALTER\s+(COLUMN\s+)?\S+\s+(SET|DROP)\s+DEFAULT\b"
    r"|(ENABLE|DISABLE)\s+KEYS\b|ALTER\s+INDEX\b|NOWAIT\b|WAIT\b|STATS_\w+\b",
    re.IGNORECASE,
)
_PLACED: Final = re.compile(r"\b(FIRST|AFTER)\b", re.IGNORECASE)
_CASCADES: Final = re.compile(r"\bON\s+(DELETE|UPDATE)\s+(CASCADE|SET\s+NULL)\b", re.IGNORECASE)
"""Rows that a foreign key changes are not in the log."""
_UNSEEN: Final = frozenset({"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH", "CALL", "SELECT", "EXECUTE"})
_TABLES: Final = frozenset({"ALTER", "DROP", "RENAME", "CREATE", "TRUNCATE", "FLASHBACK", "IMPORT"})


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a statement does to a table. kind: `emptied`, `changed`, or `unseen` for rows that no event tells."""

    kind: str
    table: str


def meaning(
    database: str, statement: str, followed: Collection[tuple[str, str]], *, named: bool = True
) -> Meaning | None:
    """Return what a statement means for followed tables, each a database and a name; None where it means nothing.

    named: whether rows name their columns. Without names a column may come behind the others only.

    >>> meaning("shop", "ALTER TABLE orders ADD note text AFTER id", {("shop", "orders")}, named=False)
    Meaning(kind='changed', table='shop.orders')
    """
    text = _NOISE.sub(_bare, statement).strip(" \t\r\n(")
    if re.match(r"SET\s+STATEMENT\b", text, re.IGNORECASE):  # with settings of its own before it
        after = (text[found.end() :] for found in re.finditer(r"\bFOR\b", text, re.IGNORECASE))
        return next(filter(None, (meaning(database, one, followed, named=named) for one in after)), None)
    first = _FIRST.match(text)
    word = first[0].upper() if first else ""
    touched = [f"{home}.{name}" for home, name in sorted(followed) if _mentions(text, database, home, name)]
    if word in _UNSEEN:
        if touched:
            return Meaning("unseen", touched[0])
        if word == "DELETE":  # so the server says that a table in memory is empty after a restart
            return None
        return Meaning("unseen", "of this statement")
    if word not in _TABLES:
        return None
    if re.match(r"(DROP|ALTER)\s+(DATABASE|SCHEMA)\b", text, re.IGNORECASE):
        return _of_database(text, followed)
    if re.match(
        r"(CREATE|DROP)\s+(OR\s+REPLACE\s+)?(DEFINER\S*\s+)?(TEMPORARY|INDEX|UNIQUE|TRIGGER|VIEW|USER|ROLE|EVENT|"
        r"PROCEDURE|FUNCTION|SEQUENCE|FULLTEXT|SPATIAL|DATABASE|SCHEMA|SERVER)\b",
        text,
        re.IGNORECASE,
    ):
        return None
    if not touched:
        return None
    if re.search(r"\bEXCHANGE\s+PARTITION\b", text, re.IGNORECASE):
        return Meaning("changed", touched[0])
    if word == "TRUNCATE":
        return Meaning("emptied", touched[0])
    if word == "CREATE":
        target = _target(text, r"CREATE\s+OR\s+REPLACE\s+TABLE\s+", database)
        return Meaning("changed", f"{target[0]}.{target[1]}") if target is not None and target in followed else None
    if word == "ALTER":
        target = _target(text, r"ALTER\s+(ONLINE\s+)?(IGNORE\s+)?TABLE\s+(IF\s+EXISTS\s+)?", database)
        if target is None or target not in followed:
            return None
        rest = text[_end(text, r"ALTER\s+(ONLINE\s+)?(IGNORE\s+)?TABLE\s+(IF\s+EXISTS\s+)?") :]
        if not named and _PLACED.search(rest):
            return Meaning("changed", f"{target[0]}.{target[1]}")
        harmless = all(_HARMLESS.match(part.strip()) for part in _parts(rest)) and not _CASCADES.search(rest)
        return None if harmless else Meaning("changed", f"{target[0]}.{target[1]}")
    return Meaning("changed", touched[0])


def _bare(found: re.Match[str]) -> str:
    """Return nothing for comments and texts; what may be a text or a name (ANSI_QUOTES) is taken as a name."""
    if found["either"]:
        return "`" + found["either"][1:-1].replace("`", "") + "`"
    return "''" if found["text"] else found["name"] or " "


_NAME: Final = r"(?:`(?:[^`]|``)+`|[^\s`.,();]+)"
_TARGET: Final = rf"({_NAME})(?:\s*\.\s*({_NAME}))?"


def _target(text: str, before: str, database: str) -> tuple[str, str] | None:
    found = re.match(rf"{before}{_TARGET}", text, re.IGNORECASE)
    if found is None:
        return None
    first, second = found[len(found.groups()) - 1], found[len(found.groups())]
    return (database, _plain(first)) if second is None else (_plain(first), _plain(second))


def _end(text: str, before: str) -> int:
    found = re.match(rf"{before}{_TARGET}", text, re.IGNORECASE)
    return 0 if found is None else found.end()


def _plain(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def _mentions(text: str, database: str, home: str, name: str) -> bool:
    """Whether a statement has the name of a table, as a word, where it would be that of the database."""
    word = rf"(?:`{re.escape(name.replace('`', '``'))}`|(?<![\w`$]){re.escape(name)}(?![\w`$]))"
    if database == home:
        return re.search(word, text, re.IGNORECASE) is not None
    return re.search(rf"`?{re.escape(home)}`?\s*\.\s*{word}", text, re.IGNORECASE) is not None


def _of_database(text: str, followed: Collection[tuple[str, str]]) -> Meaning | None:
    if not text.upper().startswith("DROP"):
        return None
    gone = [one for one in sorted(followed) if re.search(rf"\b{re.escape(one[0])}\b", text)]
    return Meaning("changed", ".".join(gone[0])) if gone else None


def _parts(text: str) -> list[str]:
    """Return the parts of an ALTER TABLE, which commas part outside of brackets and quotes.

    >>> _parts("ADD a enum('x,y'), ADD INDEX (a, b)")
    ["ADD a enum('x,y')", ' ADD INDEX (a, b)']
    """
    found, depth, quote, start = [], 0, "", 0
    for at, one in enumerate(text):
        if quote:
            quote = "" if one == quote else quote
        elif one in "'\"`":
            quote = one
        elif one in "()":
            depth += 1 if one == "(" else -1
        elif one == "," and not depth:
            found.append(text[start:at])
            start = at + 1
    return [*found, text[start:]]
