"""Columns as people write them, a Spark DDL string, and as Arrow knows them; no Spark is needed for either way.

Invariant: `parse_ddl(to_ddl(schema)) == schema` for every schema that `parse_ddl` can return, comments included.

>>> schema = parse_ddl("id long NOT NULL, amount decimal(10,2), tags array<string>, at timestamp")
>>> schema.field("amount").type, schema.field("at").type
(Decimal128Type(decimal128(10, 2)), TimestampType(timestamp[us, tz=UTC]))
>>> to_ddl(schema)
'id BIGINT NOT NULL, amount DECIMAL(10,2), tags ARRAY<STRING>, at TIMESTAMP'

Grammar, keywords in any case:

    schema  = column {"," column}
    column  = name [":"] type ["NOT" "NULL"] ["COMMENT" text]
    name    = word | "`" any characters, "`" doubled "`"
    type    = word ["(" number {"," number} ")"]
            | "array" "<" type ">" | "map" "<" type "," type ">" | "struct" "<" schema ">"
    text    = "'" ... "'" | '"' ... '"', with "\\" before a quote or a "\\"

Names are compared as Spark compares them, without regard to case.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import pyarrow as pa

from tidegauge.errors.flow import InvalidSchema, ReservedColumn
from tidegauge.errors.sources import UnsupportedType

__all__ = ["as_schema", "parse_ddl", "to_ddl"]

EPOCH_COLUMN: Final = "_epoch"
MAX_DEPTH: Final = 64
MAX_PRECISION: Final = 38

_PLAIN: Final[dict[str, Any]] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "tinyint": pa.int8(),
    "short": pa.int16(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ltz": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMALS: Final = frozenset({"decimal", "dec", "numeric"})
_TEXTS: Final = frozenset({"varchar", "char", "character"})
_NAMES: Final[dict[Any, str]] = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.date32(): "DATE",
    pa.timestamp("us", "UTC"): "TIMESTAMP",
    pa.timestamp("us"): "TIMESTAMP_NTZ",
}

_SPACE: Final = re.compile(r"\s*")
_WORD: Final = re.compile(r"\w+")
_BACKTICKED: Final = re.compile(r"`((?:[^`]|``)+)`")
_TEXT: Final = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_TO_ESCAPE: Final = re.compile(r"([\\'])")
_BARE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def parse_ddl(ddl: str) -> pa.Schema:
    """Return the columns that a DDL string describes. A comment becomes the field's metadata `comment`.

    Raises `InvalidSchema` with the character, counted from 1, at which reading had to stop, and `ReservedColumn`.
    """
    parser = _DdlParser(ddl)
    fields = parser.columns(end="", depth=0)
    for field in fields:
        _refuse_reserved(field.name)
    return pa.schema(fields)


def to_ddl(schema: pa.Schema) -> str:
    """Return the DDL string of a schema, for people and for Spark. Raises `UnsupportedType`."""
    return ", ".join(_column_ddl(field, field.name, separator=" ") for field in schema)


def as_schema(schema: str | pa.Schema | None) -> pa.Schema | None:
    """Return what a user declared as an Arrow schema whose types all have a DDL name.

    Raises as `parse_ddl` does, and `UnsupportedType` for an Arrow type that Spark has no name for.
    """
    if schema is None:
        return None
    if isinstance(schema, str):
        return parse_ddl(schema)
    return parse_ddl(to_ddl(schema))


def _refuse_reserved(name: str) -> None:
    if name.lower() == EPOCH_COLUMN:
        raise ReservedColumn(where="the schema", column=name)


def _column_ddl(field: pa.Field, path: str, *, separator: str) -> str:
    name = field.name if _BARE_NAME.fullmatch(field.name) else "`" + field.name.replace("`", "``") + "`"
    required = "" if field.nullable else " NOT NULL"
    comment = (field.metadata or {}).get(b"comment")
    note = "" if comment is None else " COMMENT '" + _TO_ESCAPE.sub(r"\\\1", comment.decode()) + "'"
    return f"{name}{separator}{_type_ddl(field.type, path)}{required}{note}"


def _type_ddl(of: Any, path: str) -> str:
    known = _NAMES.get(of)
    if known is not None:
        return known
    if pa.types.is_decimal128(of) and 0 <= of.scale <= of.precision:
        return f"DECIMAL({of.precision},{of.scale})"
    if pa.types.is_list(of):
        return f"ARRAY<{_type_ddl(of.value_type, path + '[]')}>"
    if pa.types.is_map(of):
        return f"MAP<{_type_ddl(of.key_type, path + '.key')},{_type_ddl(of.item_type, path + '.value')}>"
    if pa.types.is_struct(of) and of.num_fields:
        inner = (_column_ddl(field, f"{path}.{field.name}", separator=":") for field in of)
        return f"STRUCT<{','.join(inner)}>"
    raise UnsupportedType(column=path, type=str(of))


@dataclass(slots=True)
class _DdlParser:
    """Recursive descent; `at` is where the next token is looked for."""

    ddl: str
    at: int = 0

    def columns(self, end: str, depth: int) -> list[pa.Field]:
        fields: list[pa.Field] = []
        seen: set[str] = set()
        while True:
            start = self.skip()
            field = self.column(depth)
            if field.name.lower() in seen:
                self.fail(f"a second column named {field.name!r}", start)
            seen.add(field.name.lower())
            fields.append(field)
            if not self.took(","):
                break
        if end:
            self.expect(end)
        elif self.skip() != len(self.ddl):
            self.fail("expected ',' or the end")
        return fields

    def column(self, depth: int) -> pa.Field:
        name = self.name()
        self.took(":")
        of = self.type(depth)
        nullable, metadata = True, None
        if self.took_word("not"):
            if not self.took_word("null"):
                self.fail("expected NULL after NOT")
            nullable = False
        if self.took_word("comment"):
            metadata = {"comment": self.text()}
        return pa.field(name, of, nullable=nullable, metadata=metadata)

    def type(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            self.fail(f"types nested more than {MAX_DEPTH} deep")
        start = self.skip()
        word = self.word("a type").lower()
        if word in _PLAIN:
            return _PLAIN[word]
        if word in _DECIMALS:
            return self.decimal(start)
        if word in _TEXTS:
            if len(self.numbers()) != 1:
                self.fail(f"expected a length, as in {word}(20)", start)
            return pa.string()
        if word == "array":
            self.expect("<")
            item = self.type(depth + 1)
            self.expect(">")
            return pa.list_(item)
        if word == "map":
            self.expect("<")
            key = self.type(depth + 1)
            self.expect(",")
            item = self.type(depth + 1)
            self.expect(">")
            return pa.map_(key, item)
        if word == "struct":
            self.expect("<")
            return pa.struct(self.columns(end=">", depth=depth + 1))
        return self.fail(f"{word!r} is no type", start)

    def decimal(self, start: int) -> Any:
        numbers = self.numbers()
        if len(numbers) > 2:
            self.fail("expected decimal(precision, scale)", start)
        precision, scale = (*numbers, 0)[:2] if numbers else (10, 0)
        if not 1 <= precision <= MAX_PRECISION or scale > precision:
            self.fail(f"decimal({precision},{scale}): precision is 1 to {MAX_PRECISION}, scale at most that", start)
        return pa.decimal128(precision, scale)

    def numbers(self) -> list[int]:
        if not self.took("("):
            return []
        numbers = [self.number()]
        while self.took(","):
            numbers.append(self.number())
        self.expect(")")
        return numbers

    def number(self) -> int:
        start = self.skip()
        word = self.word("a number")
        if not re.fullmatch("[0-9]{1,9}", word):
            self.fail("expected a number", start)
        return int(word)

    def name(self) -> str:
        start = self.skip()
        found = _BACKTICKED.match(self.ddl, start)
        if found is None:
            return self.word("a column name")
        self.at = found.end()
        return found[1].replace("``", "`")

    def text(self) -> str:
        found = _TEXT.match(self.ddl, self.skip())
        if found is None:
            self.fail("expected a quoted text")
        self.at = found.end()
        return _ESCAPED.sub(r"\1", found[1] if found[1] is not None else found[2])

    def word(self, expected: str) -> str:
        found = _WORD.match(self.ddl, self.skip())
        if found is None:
            self.fail(f"expected {expected}")
        self.at = found.end()
        return found[0]

    def took_word(self, keyword: str) -> bool:
        found = _WORD.match(self.ddl, self.skip())
        if found is None or found[0].lower() != keyword:
            return False
        self.at = found.end()
        return True

    def took(self, mark: str) -> bool:
        if not self.ddl.startswith(mark, self.skip()):
            return False
        self.at += len(mark)
        return True

    def expect(self, mark: str) -> None:
        if not self.took(mark):
            self.fail(f"expected {mark!r}")

    def skip(self) -> int:
        found = _SPACE.match(self.ddl, self.at)
        self.at = found.end() if found else self.at
        return self.at

    def fail(self, detail: str, at: int | None = None) -> NoReturn:
        raise InvalidSchema(ddl=self.ddl, position=(self.at if at is None else at) + 1, detail=detail)
