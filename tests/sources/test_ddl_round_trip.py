"""A DDL string is a schema and a schema is a DDL string."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.errors.flow import InvalidSchema, ReservedColumn
from tidegauge.errors.sources import UnsupportedType
from tidegauge.sources.ddl import as_schema, parse_ddl, to_ddl
from tidegauge.testing.strategies import column_types

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).filter(
    lambda name: name.lower() != "_epoch"
)
PLAIN = column_types(nested=False)


def fields(types: st.SearchStrategy[Any]) -> st.SearchStrategy[list[pa.Field]]:
    field = st.builds(
        lambda name, of, nullable, comment: pa.field(
            name, of, nullable=nullable, metadata=None if comment is None else {"comment": comment}
        ),
        NAMES,
        types,
        st.booleans(),
        st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    )
    return st.lists(field, min_size=1, max_size=4, unique_by=lambda field: field.name.lower())


TYPES = st.recursive(
    PLAIN,
    lambda inner: st.builds(pa.list_, inner) | st.builds(pa.map_, PLAIN, inner) | st.builds(pa.struct, fields(inner)),
    max_leaves=6,
)


@given(fields(TYPES).map(pa.schema))
def test_what_is_written_is_read_back_with_its_comments(schema: pa.Schema) -> None:
    assert parse_ddl(to_ddl(schema)).equals(schema, check_metadata=True)


@given(st.text(alphabet="abc_ ,:<>()`'\"\\0123 intarymspuc\n", max_size=40))
def test_any_text_is_a_schema_or_an_error_that_says_where(text: str) -> None:
    try:
        schema = parse_ddl(text)
    except InvalidSchema as error:
        assert 1 <= error.evidence["position"] <= len(text) + 1  # noqa: PT017 - either outcome is fine
    else:
        assert parse_ddl(to_ddl(schema)).equals(schema, check_metadata=True)


@pytest.mark.parametrize(
    ("ddl", "expected"),
    [
        ("a boolean", pa.bool_()),
        ("a byte", pa.int8()),
        ("a TINYINT", pa.int8()),
        ("a short", pa.int16()),
        ("a smallint", pa.int16()),
        ("a int", pa.int32()),
        ("a integer", pa.int32()),
        ("a long", pa.int64()),
        ("a BigInt", pa.int64()),
        ("a float", pa.float32()),
        ("a real", pa.float32()),
        ("a double", pa.float64()),
        ("a string", pa.string()),
        ("a varchar(20)", pa.string()),
        ("a char( 3 )", pa.string()),
        ("a binary", pa.binary()),
        ("a date", pa.date32()),
        ("a timestamp", pa.timestamp("us", "UTC")),
        ("a timestamp_ltz", pa.timestamp("us", "UTC")),
        ("a timestamp_ntz", pa.timestamp("us")),
        ("a decimal", pa.decimal128(10, 0)),
        ("a decimal(12)", pa.decimal128(12, 0)),
        ("a numeric(12, 3)", pa.decimal128(12, 3)),
        ("a dec(1,1)", pa.decimal128(1, 1)),
        ("a array<array<int>>", pa.list_(pa.list_(pa.int32()))),
        ("a map<string,array<long>>", pa.map_(pa.string(), pa.list_(pa.int64()))),
        ("a: struct<x:int,`y z` : string>", pa.struct([("x", pa.int32()), ("y z", pa.string())])),
        ("a struct<x int not null>", pa.struct([pa.field("x", pa.int32(), nullable=False)])),
    ],
)
def test_every_type_of_sparks_is_known(ddl: str, expected: Any) -> None:
    assert parse_ddl(ddl) == pa.schema([("a", expected)])


def test_not_null_comments_and_quoted_names() -> None:
    schema = parse_ddl(
        """`a``b` long NOT NULL COMMENT 'it''s', c string comment "say \\"no\\"" """.replace("''", "\\'")
    )
    assert schema.names == ["a`b", "c"]
    assert not schema.field(0).nullable
    assert [field.metadata[b"comment"] for field in schema] == [b"it's", b'say "no"']


@pytest.mark.parametrize(
    ("ddl", "position"),
    [
        ("", 1),
        ("a", 2),
        ("a lung", 3),
        ("a long,", 8),
        ("a long b long", 8),
        ("a long, A string", 9),
        ("a decimal(39,1)", 3),
        ("a decimal(3,4)", 3),
        ("a array<int", 12),
        ("a array<nope>", 9),
        ("a struct<x:int,x:int>", 16),
        ("a struct<>", 10),
        ("a varchar", 3),
        ("a long NOT", 11),
        ("a long COMMENT 5", 16),
        ("a-b long", 2),
        ("a " + "array<" * 100 + "int" + ">" * 100, 393),
    ],
)
def test_what_is_no_schema_is_refused_at_its_character(ddl: str, position: int) -> None:
    with pytest.raises(InvalidSchema) as caught:
        parse_ddl(ddl)
    assert caught.value.evidence["position"] == position


@pytest.mark.parametrize("name", ["_epoch", "_EPOCH"])
def test_the_epoch_column_is_ours(name: str) -> None:
    with pytest.raises(ReservedColumn):
        parse_ddl(f"a int, {name} long")
    with pytest.raises(ReservedColumn):
        as_schema(pa.schema([(name, pa.int64())]))


@pytest.mark.parametrize(
    "of", [pa.uint8(), pa.large_string(), pa.timestamp("ns"), pa.time32("s"), pa.list_(pa.null())]
)
def test_an_arrow_type_that_spark_has_no_name_for_is_refused_with_its_column(of: Any) -> None:
    with pytest.raises(UnsupportedType, match="'odd"):
        as_schema(pa.schema([("odd", of)]))
