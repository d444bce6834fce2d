"""Schemas go into the store as readable JSON and come back as they were."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegauge.errors.store import UnstorableType
from tidegauge.remap.store.columns import decode_schema, differences, encode_schema

FLAT = [
    pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
    pa.float16(), pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.date32(),
    pa.timestamp("us"), pa.timestamp("us", tz="UTC"), pa.timestamp("ns", tz="Europe/Berlin"), pa.timestamp("s"),
    pa.timestamp("ms", tz="+02:00"),
]  # fmt: skip
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


def fields(kinds: st.SearchStrategy[Any], names: st.SearchStrategy[str] = NAMES) -> st.SearchStrategy[Any]:
    return st.builds(lambda name, kind, null: pa.field(name, kind, nullable=null), names, kinds, st.booleans())


decimals = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: pa.decimal128(p, s)))
kinds = st.recursive(
    st.sampled_from(FLAT) | decimals,
    lambda inner: st.one_of(
        fields(inner).map(pa.list_),
        st.lists(fields(inner), max_size=3, unique_by=lambda f: f.name).map(pa.struct),
        st.builds(lambda k, v, s: pa.map_(k, v, keys_sorted=s), inner, inner, st.booleans()),
    ),
    max_leaves=6,
)
schemas = st.lists(fields(kinds), max_size=5).map(pa.schema)


@settings(deadline=None)
@given(schemas)
def test_a_schema_comes_back_as_it_was(schema: Any) -> None:
    text = encode_schema(schema)
    back = decode_schema(text)
    assert back == schema
    assert [(f.name, str(f.type), f.nullable) for f in back] == [(f.name, str(f.type), f.nullable) for f in schema]
    assert encode_schema(back) == text


@settings(deadline=None)
@given(schemas, schemas)
def test_two_schemas_differ_iff_a_difference_is_named(one: Any, other: Any) -> None:
    assert differences(one, one) == []
    assert bool(differences(one, other)) == (encode_schema(one) != encode_schema(other))


@pytest.mark.parametrize(
    "kind", [pa.duration("s"), pa.time64("us"), pa.dictionary(pa.int8(), pa.string()), pa.struct([("a", pa.null())])]
)
def test_a_type_that_no_source_can_have_is_refused(kind: Any) -> None:
    with pytest.raises(UnstorableType, match="'c'"):
        encode_schema(pa.schema([("c", kind)]))


@pytest.mark.parametrize("kind", ["duration[s]", {"union": []}, "timestamp[us", "int65"])
def test_a_type_of_a_newer_version_is_refused(kind: Any) -> None:
    with pytest.raises(UnstorableType):
        decode_schema(json.dumps([["c", kind, True]]))
