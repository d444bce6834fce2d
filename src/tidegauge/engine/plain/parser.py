"""The part of SQL that we understand in filters and selects: what no setting can change, and what is Spark's exactly.

Invariants. An understood text means on each row exactly what Spark says it means in ANSI mode and in UTC: the value,
its type, or an error. Anything else is not understood, which is no error: those rows go to the JVM. Nothing of a text
is evaluated, whatever it says.

A text is read by `grammar`, over columns it means what `meaning` says, and `certainty` says whether its errors are
Spark's. Lists of what is understood are in `coercion` (types that are brought together) and `functions`.

A text that is a conjunction may be understood up to some conjunct. It has to be sure that it is one: only `OR` binds
weaker than `AND`, so the rest must not have that word in it, be it in a comment.

>>> schema = pa.schema([("amount", pa.float64()), ("user", pa.string())])
>>> found, whole = understood(["amount > 900", "user <> 'x' AND soundex(user) = 'Y'"], schema)
>>> len(found.parts), whole
(2, False)
>>> understood(["amount > 900 OR soundex(user) = 'Y'"], schema) is None
True
>>> value, name = projected("amount * 1.2 AS gross", schema)
>>> value.function, str(value.kind), name
('product', 'double', 'gross')
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from tidegauge.engine.plain.certainty import certain
from tidegauge.engine.plain.evaluation import raises
from tidegauge.engine.plain.expressions import All, Expression, NotUnderstood
from tidegauge.engine.plain.grammar import Reader, Reference, read
from tidegauge.engine.plain.lexer import Lexeme, lexemes
from tidegauge.engine.plain.meaning import condition, value

__all__ = ["held", "projected", "understood", "unknown"]

_LONGEST: Final = 10_000
_OR: Final = re.compile(r"(?<![A-Za-z_])OR(?![A-Za-z0-9_])", re.IGNORECASE)
_KINDS: Final = (pa.float64(), pa.int64(), pa.string(), pa.bool_(), pa.date32(), pa.timestamp("us", "UTC"))
"""Those that a column may have that is missing."""


def understood(conditions: Sequence[str], schema: pa.Schema) -> tuple[Expression, bool] | None:
    """Return the understood part of the conjunction of filters over columns of `schema`, and whether it is all.

    It is the beginning of the conjunction, and raises on no row. None where nothing is understood.
    """
    parts: list[Expression] = []
    for text in conditions:
        found, whole = _beginning(text, schema)
        parts += found
        if not whole:
            return (_all(parts), False) if parts else None
    return (_all(parts), True) if parts else None


def held(text: str, schema: pa.Schema) -> Expression | None:
    """Return the condition of a filter, or None where it is not understood wholly. It may raise."""
    try:
        sentence, name = read(_tokens(text))
        found = condition(sentence, schema)
    except NotUnderstood:
        return None
    return found if name is None and certain([found], root=False) else None


def projected(text: str, schema: pa.Schema) -> tuple[Expression, str | None] | None:
    """Return the understood form of an expression of a select over columns of `schema`, and the name that it gives
    it.

    The name is None where it is Spark that makes one up. None where the expression is not understood.
    """
    try:
        sentence, name = read(_tokens(text))
        made = value(sentence, schema)
    except NotUnderstood:
        return None
    return made, name or (sentence.path[-1] if isinstance(sentence, Reference) else None)


def unknown(text: str, schema: pa.Schema) -> str | None:
    """Return the column that a filter or an expression names and that is not there, if it is all that is wrong.

    >>> schema = pa.schema([("amount", pa.float64())])
    >>> unknown("amout > 900", schema), unknown("md5(amount) > 900", schema), unknown("amount AS gross", schema)
    ('amout', None, None)
    """
    if _meant(text, schema):
        return None
    known = {name.lower() for name in schema.names}
    words = [word for kind, word, _ in _tokens(text) if kind in {"word", "name"} and word.lower() not in known]
    return next(
        (word for word in words for kind in _KINDS if _meant(text, schema.append(pa.field(word, kind)))), None
    )


def _meant(text: str, schema: pa.Schema) -> bool:
    return held(text, schema) is not None or projected(text, schema) is not None


def _beginning(text: str, schema: pa.Schema) -> tuple[list[Expression], bool]:
    """Return the conjuncts of one text up to the first that is not understood or may raise, and whether these are
    all.
    """
    whole = held(text, schema)
    if whole is not None and not raises(whole):
        return [whole], True
    reader = Reader(_tokens(text))
    parts: list[Expression] = []
    rest = 0
    try:
        while True:
            part = condition(reader.conjunct(), schema)
            _, _, after = reader.take("AND")
            if raises(part):
                raise NotUnderstood
            parts.append(part)
            rest = after
    except NotUnderstood:
        return ([] if _OR.search(text, rest) else parts), False


def _tokens(text: str) -> list[Lexeme]:
    """Return the lexemes of a text: none if it is too long, or if Spark would replace variables in it first."""
    return [("", "", 0)] if len(text) > _LONGEST or "$" in text else lexemes(text)


def _all(parts: Sequence[Expression]) -> Expression:
    return All(tuple(parts)) if len(parts) > 1 else parts[0]
