"""The SQL that Sail is given: expressions that were measured to have Spark's value and type on every row.

Law: **a trusted expression has on Sail the rows that it has on Spark, and raises on none.** So it cannot
matter in what order they are computed, nor whether one is computed for a row that another drops. Trusted ones
are listed; anything else is refused, whether it differs or not (`tests/engine/sail` holds the list against Spark).

Arithmetic and casts are not on the list. They are left to Tidegauge's own evaluator (`plain`): Sail's integers wrap
around where Spark raises.

>>> from tidegauge.engine.plain.grammar import read
>>> from tidegauge.engine.plain.lexer import lexemes
>>> orders = pa.schema([("id", pa.int64()), ("user", pa.string())])
>>> kind_of(read(lexemes("soundex(user) = 'A'"))[0], orders)
DataType(bool)
>>> kind_of(read(lexemes("id + 1"))[0], orders)
Traceback (most recent call last):
tidegauge.engine.sail.trusted.Untrusted: '+' is not on the list of what it computes as Spark does
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from tidegauge.engine.plain.expressions import NotUnderstood
from tidegauge.engine.plain.grammar import Applied, Reference, Said, Sentence
from tidegauge.engine.plain.meaning import meant

__all__ = ["AGGREGATES", "FUNCTIONS", "Untrusted", "aggregate_of", "carriable", "comparable", "kind_of"]


class Untrusted(Exception):
    """What a text has that Sail is not given, for people."""


_BOOLEAN: Final = pa.bool_()
_TEXT: Final = pa.string()
_INT: Final = pa.int32()
_LONG: Final = pa.int64()
_DOUBLE: Final = pa.float64()
_DATE: Final = pa.date32()
_INSTANT: Final = pa.timestamp("us", "UTC")
_TEXTS: Final = pa.list_(pa.string())
_COMPARISONS: Final = frozenset({"=", "==", "<>", "!=", "<", "<=", ">", ">="})
_FIRST: Final = frozenset({"COALESCE", "NVL", "IFNULL"})

_OF: Final[Mapping[str, Callable[[Any], bool]]] = MappingProxyType(
    {
        "text": pt.is_string,
        "int": pt.is_int32,
        "whole": lambda kind: bool(pt.is_int32(kind) or pt.is_int64(kind)),
        "day": pt.is_date32,
        "instant": _INSTANT.equals,
        "list": lambda kind: bool(
            pt.is_list(kind) and (pt.is_string(kind.value_type) or pt.is_int32(kind.value_type))
        ),
        "texts": _TEXTS.equals,
        "same": lambda kind: bool(pt.is_string(kind) or pt.is_int32(kind)),
        "hashed": lambda kind: bool(
            pt.is_string(kind) or pt.is_int32(kind) or pt.is_int64(kind) or pt.is_date32(kind) or pt.is_boolean(kind)
        ),
    }
)
"""The types that an argument may have."""
_LITERALS: Final[Mapping[str, str]] = MappingProxyType(
    {"TEXT": ".*", "WORD": "[A-Za-z0-9 ,:;_-]+", "SIZE": "[0-9]{1,4}"}
)
"""The texts of the literals that an argument may be."""

FUNCTIONS: Final[Mapping[str, tuple[tuple[str, Any], ...]]] = MappingProxyType(
    {
        **dict.fromkeys(("REVERSE", "TRIM", "LTRIM", "RTRIM", "MD5", "SHA1", "SHA", "SOUNDEX"), (("text", _TEXT),)),
        **dict.fromkeys(("ASCII", "LENGTH", "CHAR_LENGTH", "OCTET_LENGTH", "BIT_LENGTH"), (("text", _INT),)),
        **dict.fromkeys(("REPEAT", "LEFT", "RIGHT"), (("text SIZE", _TEXT),)),
        **dict.fromkeys(("LPAD", "RPAD"), (("text SIZE TEXT", _TEXT),)),
        **dict.fromkeys(("STARTSWITH", "ENDSWITH", "CONTAINS"), (("text text", _BOOLEAN),)),
        **{name: (("hashed ...", kind),) for name, kind in (("HASH", _INT), ("XXHASH64", _LONG))},
        **dict.fromkeys(("GREATEST", "LEAST"), (("same same", None),)),
        **dict.fromkeys(("SIZE", "CARDINALITY", "ARRAY_SIZE"), (("list", _INT),)),
        **dict.fromkeys(("ARRAY_DISTINCT", "SORT_ARRAY", "ARRAY_COMPACT"), (("list", None),)),
        **dict.fromkeys(("ARRAY_MAX", "ARRAY_MIN"), (("list", "item"),)),
        **dict.fromkeys(("YEAR", "MONTH", "DAY", "QUARTER", "DAYOFWEEK"), (("day", _INT), ("instant", _INT))),
        **dict.fromkeys(("DAYOFMONTH", "DAYOFYEAR", "WEEKDAY", "WEEKOFYEAR", "UNIX_DATE"), (("day", _INT),)),
        **dict.fromkeys(("DAYNAME", "MONTHNAME"), (("day", _TEXT),)),
        **dict.fromkeys(("HOUR", "MINUTE", "SECOND"), (("instant", _INT),)),
        "SHA2": (("text SIZE", _TEXT),),
        "CRC32": (("text", _LONG),),
        "HEX": (("text", _TEXT), ("whole", _TEXT)),
        "BIN": (("whole", _TEXT),),
        "BIT_COUNT": (("whole", _INT),),
        "TRANSLATE": (("text TEXT TEXT", _TEXT),),
        "REPLACE": (("text WORD TEXT", _TEXT),),
        "SPLIT": (("text WORD", _TEXTS),),
        "SUBSTRING_INDEX": (("text WORD SIZE", _TEXT),),
        "INSTR": (("text WORD", _INT),),
        "LOCATE": (("WORD text", _INT),),
        "LEVENSHTEIN": (("text text", _INT),),
        "CONCAT": (("text text ...", _TEXT),),
        "CONCAT_WS": (("TEXT text ...", _TEXT), ("TEXT texts", _TEXT)),
        "ARRAY_JOIN": (("texts TEXT", _TEXT),),
        "LAST_DAY": (("day", _DATE),),
        "UNIX_MICROS": (("instant", _LONG),),
        "TO_DATE": (("instant", _DATE),),
    }
)
"""By its name in capitals, what a function is given and the type that it has: None for that of its first argument.

Small letters stand for types, capitals for literals, `...` for the one before it any number of times more.
"""


def carriable(kind: Any) -> bool:
    """Whether values of a type come back from Sail as they went.

    A struct in a struct does not: Sail 0.7 loses rows that a filter keeps beside one, and the job ends well.
    """
    if pt.is_list(kind):
        return carriable(kind.value_type)
    if pt.is_struct(kind):
        return all(carriable(field.type) and not pt.is_struct(field.type) for field in kind)
    plain = (pt.is_boolean, pt.is_signed_integer, pt.is_float32, pt.is_float64, pt.is_string, pt.is_binary)
    return any(same(kind) for same in (*plain, pt.is_date32, pt.is_decimal128, _INSTANT.equals))


def comparable(kind: Any) -> bool:
    """Whether values of a type are the same on Sail where they are on Spark: not doubles, which have two zeros."""
    plain = (pt.is_boolean, pt.is_signed_integer, pt.is_string, pt.is_date32, _INSTANT.equals)
    return any(same(kind) for same in plain)


def kind_of(sentence: Sentence, schema: pa.Schema) -> Any:
    """Return the type of an expression over columns of `schema`. Raises `Untrusted`."""
    match sentence:
        case Said("NULL"):
            raise Untrusted("NULL has no type of its own")
        case Said() | Reference():
            return _leaf(sentence, schema)
        case Applied(("AND" | "OR" | "NOT"), parts):
            return _all(parts, pt.is_boolean, schema)
        case Applied("IS NULL", (part,)):
            if pt.is_struct(kind_of(part, schema)):
                raise Untrusted("whether a struct is null")
            return _BOOLEAN
        case Applied("LIKE", (part, Said("text", pattern))):
            if "\\" in pattern:
                raise Untrusted("a pattern with a backslash")
            return _all((part,), pt.is_string, schema)
        case Applied("CASE", parts):
            _all(parts[:-1:2], pt.is_boolean, schema)
            return _same((*parts[1:-1:2], parts[-1]), schema)
        case Applied("IF", (asked, one, other)):
            _all((asked,), pt.is_boolean, schema)
            return _same((one, other), schema)
        case Applied(word, parts) if word in _FIRST and len(parts) > 1:
            return _same(parts, schema)
        case Applied(("BETWEEN" | "IN" | "SUBJECT ="), parts):
            return _compared(parts, schema)
        case Applied(sign, parts) if sign in _COMPARISONS and len(parts) == 2:
            return _compared(parts, schema)
        case Applied(word, parts):
            return _called(word, parts, schema)


def aggregate_of(word: str, parts: Sequence[Sentence], schema: pa.Schema) -> Any:
    """Return the type of an aggregate. Raises `Untrusted`."""
    kinds = [kind_of(part, schema) for part in parts]
    found = AGGREGATES.get(word)
    made = None if found is None else found(kinds)
    if made is None:
        raise Untrusted(f"the aggregate {word.lower()}({', '.join(map(str, kinds))}) is not on the list")
    return made


def _extreme(kinds: Sequence[Any]) -> Any:
    return kinds[0] if len(kinds) == 1 and comparable(kinds[0]) else None


def _sum(kinds: Sequence[Any]) -> Any:
    """Of 32 bits the sum of two thousand million rows fits into 64; of 64 it may wrap around."""
    if len(kinds) == 1 and pt.is_signed_integer(kinds[0]) and kinds[0].bit_width <= _INT.bit_width:
        return _LONG
    return _DOUBLE if len(kinds) == 1 and pt.is_float64(kinds[0]) else None


AGGREGATES: Final[Mapping[str, Callable[[Sequence[Any]], Any]]] = MappingProxyType(
    {"COUNT": lambda _kinds: _LONG, "MIN": _extreme, "MAX": _extreme, "SUM": _sum}
)
"""By its name in capitals, the type that an aggregate of these types has, or None."""


def _leaf(sentence: Sentence, schema: pa.Schema) -> Any:
    if isinstance(sentence, Reference) and len(sentence.path) > 1:
        raise Untrusted("a field of a struct, which it does not find null where the struct is")
    try:
        made = meant(sentence, schema)
    except NotUnderstood:
        if isinstance(sentence, Reference):
            raise Untrusted(f"there is no one column {'.'.join(sentence.path)!r}, spelt exactly like that") from None
        raise Untrusted(f"the literal {sentence!r}") from None
    if isinstance(sentence, Said) and pt.is_decimal(made.kind):
        raise Untrusted("a literal with a decimal point")
    return made.kind


def _all(parts: Sequence[Sentence], wanted: Callable[[Any], bool], schema: pa.Schema) -> Any:
    for part in parts:
        if not wanted(kind := kind_of(part, schema)):
            raise Untrusted(f"a value of {kind}, which Spark would cast")
    return _BOOLEAN


def _same(parts: Sequence[Sentence], schema: pa.Schema) -> Any:
    kinds = [kind_of(part, schema) for part in parts if part != Said("NULL", "NULL")]
    if not kinds:
        raise Untrusted("NULL has no type of its own")
    kind, *others = kinds
    if any(not kind.equals(other) for other in others):
        raise Untrusted("values of several types, which Spark would cast")
    return kind


def _compared(parts: Sequence[Sentence], schema: pa.Schema) -> Any:
    kinds = [kind_of(part, schema) for part in parts]
    if any(map(pt.is_float64, kinds)):
        kinds = [
            kind
            for kind, part in zip(kinds, parts, strict=True)
            if not (isinstance(part, Said) and pt.is_int32(kind))
        ]
        if all(map(pt.is_float64, kinds)):
            return _BOOLEAN  # of NaN and of both zeros too
    if not all(map(comparable, kinds)):
        raise Untrusted(f"a comparison of {', '.join(map(str, kinds))}")
    if any(not kind.equals(kinds[0]) and not all(map(pt.is_signed_integer, kinds)) for kind in kinds):
        raise Untrusted("a comparison of values of several types, which Spark would cast")
    return _BOOLEAN


def _called(word: str, parts: Sequence[Sentence], schema: pa.Schema) -> Any:
    found = FUNCTIONS.get(word)
    if found is None:
        name = f"{word.lower()}()" if word.isidentifier() else repr(word)
        raise Untrusted(f"{name} is not on the list of what it computes as Spark does")
    kinds = [kind_of(part, schema) for part in parts]
    for wanted, made in found:
        if _fits(wanted.split(), kinds, parts):
            return kinds[0].value_type if made == "item" else kinds[0] if made is None else made
    given = ", ".join(map(str, kinds))
    forms = " or ".join(f"({wanted})" for wanted, _ in found)
    raise Untrusted(f"{word.lower()}({given}) is not on the list, where it has the arguments {forms}")


def _fits(wanted: list[str], kinds: Sequence[Any], parts: Sequence[Sentence]) -> bool:
    if wanted[-1] == "...":
        wanted = [*wanted[:-1], *([wanted[-2]] * (len(parts) - len(wanted) + 1))]
    return (
        len(wanted) == len(parts)
        and all(map(_is, wanted, kinds, parts))
        and not ("same" in wanted and any(not kind.equals(kinds[0]) for kind in kinds))
    )


def _is(wanted: str, kind: Any, part: Sentence) -> bool:
    """Whether an argument is what a function is to be given."""
    if wanted.islower():
        return _OF[wanted](kind)
    literal = "number" if wanted == "SIZE" else "text"
    return (
        isinstance(part, Said)
        and part.kind == literal
        and re.fullmatch(_LITERALS[wanted], part.text, re.DOTALL) is not None
    )
