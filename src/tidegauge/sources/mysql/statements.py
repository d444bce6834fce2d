"""What a statement in the log means for the tables that are followed: nothing, the end of one, or a change unseen.

Rows are told by other events. A statement is one that changes tables themselves, or one that a session wrote with
settings of its own instead of its rows.

Invariant: a statement that may change rows or columns of a followed table is never passed over. The other way round
one that mentions a table may be refused though it would do no harm.

>>> followed = {("shop", "orders")}
>>> meaning("shop", "ALTER TABLE orders ADD COLUMN note text, ADD INDEX (note)", followed)
>>> meaning("other", "DROP TABLE orders", followed)
>>> meaning("shop", "TRUNCATE `orders`", followed)
Meaning(kind='emptied', tables=(('shop', 'orders'),))
>>> meaning("shop", "ALTER TABLE shop.orders DROP COLUMN note", followed).kind
'changed'
>>> meaning("shop", "SET STATEMENT lock_wait_timeout = 5 FOR TRUNCATE orders", followed).kind
'emptied'
>>> meaning("shop", "ALTER TABLE orders COMMENT = 'it\\\\'s # one', DROP note", followed).kind
'changed'
>>> meaning("shop", "UPDATE orders SET n = 1", followed).kind
'unseen'
>>> meaning("shop", "RENAME TABLE orders TO _orders_old, _orders_new TO orders", followed | {("shop", "users")})
Meaning(kind='changed', tables=(('shop', 'orders'),))
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

__all__ = ["Meaning", "meaning"]

_SIGNS: Final = r"""|(?P<name>`(?:[^`]|``)*`)|/\*(?!M?!).*?\*/|/\*M?!\d*|\*/|(?:--\s|\#)[^\n]*"""
_NOISE: Final = {
    True: re.compile(rf"""(?P<text>'(?:[^'\\]|\\.|'')*')|(?P<either>"(?:[^"\\]|\\.|"")*"){_SIGNS}""", re.DOTALL),
    False: re.compile(rf"""(?P<text>'(?:[^']|'')*')|(?P<either>"(?:[^"]|"")*"){_SIGNS}""", re.DOTALL),
}
"""Quoted texts and names, comments, and the signs around words that only look like a comment: where a backslash
escapes, and where it does not."""
_FIRST: Final = re.compile(r"[A-Za-z]+")
_HARMLESS: Final = re.compile(
    r"ADD\b(?!\s+(SYSTEM|PERIOD)\b)|COMMENT\b|AUTO_INCREMENT\b|FORCE\b"
    r"|(DROP|RENAME)\s+(INDEX|KEY|FOREIGN\s+KEY|CONSTRAINT|CHECK)\b(?!\s+(IF\s+EXISTS\s+)?`PRIMARY`)"
    r"|ENGINE\b|ROW_FORMAT\b|ALGORITHM\b|LOCK\b|ALTER\s+(COLUMN\s+)?\S+\s+(SET|DROP)\s+(DEFAULT|VISIBLE|INVISIBLE)\b"
    r"|(ENABLE|DISABLE)\s+KEYS\b|ALTER\s+INDEX\b|STATS_\w+\b",
    re.IGNORECASE,
)
_KEEPS: Final = re.compile(r"\s*(REORGANIZE|REBUILD|OPTIMIZE|ANALYZE|CHECK|COALESCE)\s+PARTITION\b", re.IGNORECASE)
"""Works on partitions, and leaves all rows in the table. It stands for itself."""
_ENGINE: Final = re.compile(r"(?<![`.(])(?<!ADD )(?<!COLUMN )\bENGINE\b(?!`|\s*=?\s*`?InnoDB\b)", re.IGNORECASE)
"""Options stand beside each other without commas."""
_ALTER: Final = r"ALTER\s+(?:(?:ONLINE|OFFLINE|(?P<ignoring>IGNORE))\s+)*TABLE\s+(?:IF\s+EXISTS\s+)?"
_ALTERS: Final = re.compile(
    r"ALTER(?:\s+(?!(?:VIEW|EVENT|PROCEDURE|FUNCTION|DATABASE|SCHEMA|USER)\b)\w+)*?\s+TABLE\b", re.IGNORECASE
)
"""However it is spelled: one that is not understood is taken for a change."""
_REPLACE: Final = r"CREATE\s+OR\s+REPLACE\s+(?:TABLE|SEQUENCE)\s+"
_UNKEYED: Final = r"DROP\s+INDEX\s+(?:IF\s+EXISTS\s+)?`PRIMARY`\s+ON\s+"
"""The primary key is an index as well."""
_ANALYZED: Final = re.compile(
    r"ANALYZE\s+(?:FORMAT\s*=\s*\S+\s+)?(?=(?:INSERT|UPDATE|DELETE|REPLACE|WITH|SELECT)\b)", re.IGNORECASE
)
"""MariaDB says how it runs a statement, and runs it."""
_SWAPS: Final = re.compile(r"\b(EXCHANGE\s+PARTITION|CONVERT\s+(PARTITION|TABLE))\b", re.IGNORECASE)
"""Rows go from one table to another."""
_RENAMED: Final = re.compile(r"\s*RENAME\s+(?!(COLUMN|INDEX|KEY)\b)", re.IGNORECASE)
_PLACED: Final = re.compile(r"\b(FIRST|AFTER)\b", re.IGNORECASE)
_CASCADES: Final = re.compile(r"\bON\s+(DELETE|UPDATE)\s+(CASCADE|SET\s+NULL)\b", re.IGNORECASE)
"""Rows that a foreign key changes are not in the log."""
_UNSEEN: Final = frozenset({"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH", "CALL", "SELECT", "EXECUTE"})
_TABLES: Final = frozenset({"ALTER", "DROP", "RENAME", "CREATE", "TRUNCATE", "FLASHBACK", "IMPORT"})


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a statement does to tables, each a database and a name.

    kind: `emptied`, `changed`, or `unseen` for rows that no event tells: those of any table, where none is named."""

    kind: str
    tables: tuple[tuple[str, str], ...]


def meaning(
    database: str,
    statement: str,
    followed: Collection[tuple[str, str]],
    *,
    named: bool = True,
    alone: bool = False,
    escapes: bool = True,
) -> Meaning | None:
    """Return what a statement means for followed tables, each a database and a name; None where it means nothing.

    named: whether rows name their columns. Without names a column may come behind the others only. alone: it is in no
    transaction. escapes: whether a backslash escapes what follows it (`NO_BACKSLASH_ESCAPES`).

    >>> meaning("shop", "ALTER TABLE orders ADD note text AFTER id", {("shop", "orders")}, named=False)
    Meaning(kind='changed', tables=(('shop', 'orders'),))
    """
    text = _ANALYZED.sub("", _NOISE[escapes].sub(_bare, statement).strip(" \t\r\n("), count=1)
    if re.match(r"SET\s+STATEMENT\b", text, re.IGNORECASE):  # with settings of its own before it
        after = (text[found.end() :] for found in re.finditer(r"\bFOR\b", text, re.IGNORECASE))
        return next(filter(None, (meaning(database, one, followed, named=named) for one in after)), None)
    first = _FIRST.match(text)
    word = first[0].upper() if first else ""
    touched = tuple(one for one in sorted(followed) if _mentions(text, database, *one))
    if word in _UNSEEN:
        if not touched and word == "DELETE" and alone:  # by the server: a table in memory is empty after a restart
            return None  # one that a session has written may delete by a view, or a trigger
        return Meaning("unseen", touched)
    if word not in _TABLES:
        return None
    if re.match(r"(DROP|ALTER)\s+(DATABASE|SCHEMA)\b", text, re.IGNORECASE):
        return _changed(_of_database(text, followed) if word == "DROP" else ())
    if gone := _named(text, _UNKEYED, database, followed) or _named(text, _REPLACE, database, followed):
        return _changed(gone)
    if not touched or re.match(
        r"(CREATE|DROP)\s+(OR\s+REPLACE\s+)?(DEFINER\S*\s+)?(TEMPORARY|INDEX|UNIQUE|TRIGGER|VIEW|USER|ROLE|EVENT|"
        r"PROCEDURE|FUNCTION|SEQUENCE|FULLTEXT|SPATIAL|DATABASE|SCHEMA|SERVER)\b",
        text,
        re.IGNORECASE,
    ):
        return None
    if word == "TRUNCATE":
        return Meaning("emptied", touched)
    if word == "CREATE":
        return None
    if word == "ALTER":
        if _ALTERS.match(text) and re.match(rf"{_ALTER}{_TARGET}", text, re.IGNORECASE) is None:
            return _changed(touched)
        return _changed(touched if _SWAPS.search(text) else tuple(_altered(text, database, followed, named=named)))
    return _changed(touched)


def _changed(tables: tuple[tuple[str, str], ...]) -> Meaning | None:
    return Meaning("changed", tables) if tables else None


def _altered(
    text: str, database: str, followed: Collection[tuple[str, str]], *, named: bool
) -> Iterator[tuple[str, str]]:
    """Yield the tables that an ALTER TABLE changes."""
    found = re.match(rf"{_ALTER}{_TARGET}(?:\s+(?:NOWAIT\b|WAIT\s+\d+))?", text, re.IGNORECASE)
    if found is None:
        return
    rest = text[found.end() :]
    parts = [rest] if _KEEPS.match(rest) else _parts(rest)
    harmless = not _CASCADES.search(rest) and not _ENGINE.search(rest) and not found["ignoring"]
    harmless = harmless and (named or not _PLACED.search(rest))
    if not harmless or not all(_KEEPS.match(part) or _HARMLESS.match(part.strip()) for part in parts):
        yield from _named(text, _ALTER, database, followed)
    for part in parts:  # another table takes this name
        if _RENAMED.match(part):
            yield from _named(part, r"\s*RENAME\s+(?:(?:TO|AS)\s+|=\s*)?", database, followed)


def _bare(found: re.Match[str]) -> str:
    """Return nothing for comments and texts; what may be a text or a name (ANSI_QUOTES) is taken as a name."""
    if found["either"]:
        return " `" + found["either"][1:-1].replace("`", "") + "` "
    return "''" if found["text"] else f" {found['name'] or ''} "  # no space need stand beside a quoted name


_NAME: Final = r"(?:`(?:[^`]|``)+`|[^\s`.,();]+)"
_TARGET: Final = rf"(?:\.\s*)?(?P<first>{_NAME})(?:\s*\.\s*(?P<second>{_NAME}))?"


def _named(
    text: str, before: str, database: str, followed: Collection[tuple[str, str]]
) -> tuple[tuple[str, str], ...]:
    """Return the followed table that a text names, behind these words. Letters of both cases count as one: servers
    take them so, or not."""
    found = re.match(rf"{before}{_TARGET}", text, re.IGNORECASE)
    if found is None:
        return ()
    first, second = _plain(found["first"]), found["second"]
    target = (database, first) if second is None else (first, _plain(second))
    return tuple(one for one in sorted(followed) if [*map(str.casefold, one)] == [*map(str.casefold, target)])


def _plain(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def _mentions(text: str, database: str, home: str, name: str) -> bool:
    """Whether a statement has the name of a table, as a word, where it would be that of the database."""
    if database.casefold() == home.casefold():
        return re.search(_word(name), text, re.IGNORECASE) is not None
    return re.search(rf"{_word(home)}\s*\.\s*{_word(name)}", text, re.IGNORECASE) is not None


def _word(name: str) -> str:
    return rf"(?:`{re.escape(name.replace('`', '``'))}`|(?<![\w`$]){re.escape(name)}(?![\w`$]))"


def _of_database(text: str, followed: Collection[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the tables of the database that is dropped.

    >>> _of_database("DROP DATABASE `the-shop-`", {("the-shop-", "orders"), ("shop", "users")})
    (('the-shop-', 'orders'),)
    """
    found = re.match(rf"DROP\s+\w+\s+(?:IF\s+EXISTS\s+)?(?P<name>{_NAME})", text, re.IGNORECASE)
    name = "" if found is None else _plain(found["name"]).casefold()
    return tuple(one for one in sorted(followed) if one[0].casefold() == name)


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
