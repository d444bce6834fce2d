r"""An Avro schema becomes columns.

Definition: a node is a type of the schema with two Arrow types: that of the values read (`wire`: a number literally,
a decimal as bytes) and that of the column that they become (`column`). A record is its fields, a union of null and
one other type is that type; a top level that is no record is one column, `value`.

Invariant: every value takes at least one byte wherever it may be repeated, and the depth is bounded, so the work that
a message can ask for is bounded by its length.

>>> at = {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}
>>> node = node_of({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, at]})
>>> print(columns_of(node))
id: int64
at: timestamp[us, tz=UTC]
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import pyarrow as pa

from tidegauge.errors.formats import InvalidMessageSchema, SchemaWithoutColumns
from tidegauge.errors.sources import UnsupportedType
from tidegauge.sources.formats.infer import as_table

__all__ = ["VALUE", "SchemaNode", "columns_of", "default_of", "definitions", "node_of", "parsed"]

MAX_DEPTH: Final = 32
MAX_NODES: Final = 10_000
MAX_PRECISION: Final = 38
VALUE: Final = "value"

_PLAIN: Final[Mapping[str, Any]] = {
    "null": pa.string(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_TIMES: Final[Mapping[tuple[str, str], tuple[Any, Any]]] = {
    ("int", "date"): (pa.date32(), pa.date32()),
    **{
        ("long", f"{kind}timestamp-{name}"): (pa.timestamp(unit, zone), pa.timestamp("us", zone))
        for kind, zone in (("", "UTC"), ("local-", None))
        for name, unit in (("millis", "ms"), ("micros", "us"), ("nanos", "ns"))
    },
}
"""Times of the day stay the numbers that they are, milliseconds or microseconds: Spark has no type for them."""


@dataclass(frozen=True, slots=True)
class SchemaNode:
    """A type of a schema.

    kind: of the Avro specification. inner: of a record the types of its fields, of an array, a map and a union the
    one inside. names: of a record its fields, of an enum its symbols. size: of a fixed. null: of a union, which
    branch is null: 0, 1, or -1 for none.
    """

    kind: str
    wire: Any
    column: Any
    inner: tuple[SchemaNode, ...] = ()
    names: tuple[str, ...] = ()
    size: int = 0
    null: int = -1


def parsed(schema: object) -> Any:
    """Return a schema, given as JSON text or as data, as data. Raises `InvalidMessageSchema`."""
    if not isinstance(schema, str):
        return schema
    try:
        return json.loads(schema)
    except (ValueError, RecursionError) as error:
        raise InvalidMessageSchema(kind="Avro", detail=f"it is no JSON: {error}") from None


def node_of(schema: Any, *, known: Mapping[str, Any] | None = None) -> SchemaNode:
    """Return the tree of a schema; `known` are schemas that it may name, by their full names.

    Raises `InvalidMessageSchema` and `SchemaWithoutColumns`.
    """
    try:
        return _NodeBuilder(dict(known or {})).node(schema, path="the top level", space="", above=())
    except RecursionError:
        raise InvalidMessageSchema(kind="Avro", detail="it is nested too deeply") from None


def columns_of(node: SchemaNode) -> pa.Schema:
    """Return the columns of a message. Raises as `as_table` does, and `SchemaWithoutColumns`."""
    fields = list(node.column) if node.kind == "record" else [pa.field(VALUE, node.column)]
    try:
        return as_table(pa.schema(fields), "the Avro schema")
    except UnsupportedType as error:
        evidence = error.evidence
        raise SchemaWithoutColumns(path=evidence["column"], kind="Avro", detail=str(evidence["type"])) from None


class _NodeBuilder:
    """Knows the named types so far, by full name: their definitions, each with the namespace around it."""

    def __init__(self, known: dict[str, Any]) -> None:
        self._named: dict[str, tuple[Any, str]] = {name: (found, "") for name, found in known.items()}
        self._nodes = 0

    def definitions(self) -> dict[str, Any]:
        return {name: {**found, "namespace": space} for name, (found, space) in self._named.items()}

    def node(self, schema: Any, *, path: str, space: str, above: tuple[str, ...]) -> SchemaNode:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            _refuse(path, f"the schema has more than {MAX_NODES} parts")
        if len(above) > MAX_DEPTH or path.count(".") > MAX_DEPTH:
            _refuse(path, f"it is nested more than {MAX_DEPTH} deep")
        if isinstance(schema, list):
            return self._union(schema, path, space, above)
        if isinstance(schema, str):
            return self._by_name(schema, path, space, above)
        if not isinstance(schema, dict) or "type" not in schema:
            _invalid(path, "a type is a name, a list or an object with a type")
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.node(kind, path=path, space=space, above=above)
        if kind in ("record", "error", "enum", "fixed"):
            return self._definition(schema, path, space, above)
        if kind == "array":
            inner = self.node(schema.get("items"), path=f"{path}.items", space=space, above=above)
            _check_item(inner, path)
            return SchemaNode("array", pa.list_(inner.wire), pa.list_(inner.column), (inner,))
        if kind == "map":
            inner = self.node(schema.get("values"), path=f"{path}.values", space=space, above=above)
            return SchemaNode("map", pa.map_(pa.string(), inner.wire), pa.map_(pa.string(), inner.column), (inner,))
        return _logical(self._by_name(kind, path, space, above), schema)

    def _by_name(self, name: str, path: str, space: str, above: tuple[str, ...]) -> SchemaNode:
        if name in _PLAIN:
            return SchemaNode(name, _PLAIN[name], _PLAIN[name])
        full = name if "." in name or f"{space}.{name}" not in self._named else f"{space}.{name}"
        if full in above:
            _refuse(path, f"the type {full} contains itself")
        if full not in self._named:
            _invalid(path, f"there is no type {name!r}")
        found, around = self._named[full]
        return self.node(found, path=path, space=around, above=above)

    def _definition(self, schema: dict[str, Any], path: str, space: str, above: tuple[str, ...]) -> SchemaNode:
        name = schema.get("name")
        if not isinstance(name, str) or not name:
            _invalid(path, "a named type without a name")
        space = name.rpartition(".")[0] or str(schema.get("namespace", space) or "")
        full = name if "." in name or not space else f"{space}.{name}"
        self._named.setdefault(full, (schema, space))
        if schema["type"] == "enum":
            return SchemaNode("enum", pa.string(), pa.string(), names=_names(schema.get("symbols"), path))
        if schema["type"] == "fixed":
            size = schema.get("size")
            if not isinstance(size, int) or not 0 < size < 2**31:
                _invalid(path, f"a fixed of {size!r} bytes")
            return _logical(SchemaNode("fixed", pa.binary(), pa.binary(), size=size), schema)
        fields = schema.get("fields")
        if not isinstance(fields, list) or not all(isinstance(field, dict) for field in fields):
            _invalid(path, "a record without a list of fields")
        if not fields:
            _refuse(path, "a record without fields")
        names = _names([field.get("name") for field in fields], path)
        start = "" if path == "the top level" else f"{path}."
        inner = tuple(
            self.node(field.get("type"), path=f"{start}{field['name']}", space=space, above=(*above, full))
            for field in fields
        )
        return SchemaNode(
            "record",
            pa.struct([(name, node.wire) for name, node in zip(names, inner, strict=True)]),
            pa.struct([(name, node.column) for name, node in zip(names, inner, strict=True)]),
            inner,
            names,
        )

    def _union(self, branches: list[Any], path: str, space: str, above: tuple[str, ...]) -> SchemaNode:
        nulls = [i for i, branch in enumerate(branches) if branch in ("null", {"type": "null"})]
        others = [branch for i, branch in enumerate(branches) if i not in nulls]
        if len(nulls) > 1 or len(others) != 1:
            _refuse(path, "a union is a column only when it is null and one other type")
        inner = self.node(others[0], path=path, space=space, above=above)
        return SchemaNode("union", inner.wire, inner.column, (inner,), null=nulls[0] if nulls else -1)


def _logical(node: SchemaNode, schema: dict[str, Any]) -> SchemaNode:
    """Give a type its declared meaning; as Avro has it, one that does not fit is ignored."""
    logical = schema.get("logicalType")
    if not isinstance(logical, str):
        return node
    if (node.kind, logical) in _TIMES:
        wire, column = _TIMES[node.kind, logical]
        return SchemaNode(node.kind, wire, column)
    if logical == "decimal" and node.kind in ("bytes", "fixed"):
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        if isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision and precision > 0:
            if precision > MAX_PRECISION:
                _refuse("a decimal", f"its precision is {precision}, and {MAX_PRECISION} is the most")
            return SchemaNode(node.kind, pa.binary(), pa.decimal128(precision, scale), size=node.size)
    return node


def _check_item(item: SchemaNode, path: str) -> None:
    """Refuse what may be repeated without a byte: a message of ten bytes could ask for a billion of them."""
    if item.kind == "null" or (item.kind == "record" and all(_is_empty(node) for node in item.inner)):
        _refuse(path, "an array of values that take no space")


def _is_empty(node: SchemaNode) -> bool:
    return node.kind == "null" or (node.kind == "record" and all(map(_is_empty, node.inner)))


def _names(names: Any, path: str) -> tuple[str, ...]:
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        _invalid(path, "names are a list of texts")
    if len(set(names)) < len(names):
        _invalid(path, "a name is there twice")
    return tuple(names)


def _invalid(path: str, detail: str) -> NoReturn:
    raise InvalidMessageSchema(kind="Avro", detail=f"{path}: {detail}")


def _refuse(path: str, detail: str) -> NoReturn:
    raise SchemaWithoutColumns(path=path, kind="Avro", detail=detail)


def definitions(schema: Any, known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the definitions of named types in a schema by their full names, itself and those known included."""
    builder = _NodeBuilder(dict(known))
    builder.node(schema, path="the top level", space="", above=())
    return builder.definitions()


def default_of(node: SchemaNode, schema: Any) -> dict[str, Any]:
    """Return the defaults of a record's fields, each as an array of one value of the field's wire type."""
    found: dict[str, Any] = {}
    for name, inner, field in zip(
        node.names, node.inner, schema["fields"] if node.kind == "record" else (), strict=False
    ):
        if "default" in field:
            try:
                found[name] = pa.array([_written(inner, field["default"])], inner.wire)
            except (pa.ArrowException, TypeError, ValueError, AttributeError, KeyError):
                _invalid(name, f"its default {field['default']!r} is no value of its type")
    return found


def _written(node: SchemaNode, default: Any) -> Any:
    """Return a default as Avro writes it in JSON, bytes as text, as `pa.array` takes it for `node.wire`."""
    if node.kind == "union":
        return None if default is None else _written(node.inner[0], default)
    if node.kind in ("bytes", "fixed"):
        return default.encode("latin-1")
    if node.kind == "record":
        return {name: _written(inner, default[name]) for name, inner in zip(node.names, node.inner, strict=True)}
    if node.kind == "array":
        return [_written(node.inner[0], item) for item in default]
    if node.kind == "map":
        return [(key, _written(node.inner[0], item)) for key, item in default.items()]
    return default
