r"""What a Protobuf message type looks like as columns: the arrays of its fields, and their shapes on the wire.

Definition: a field that can be absent (`optional`, a message, one of several) is null when it is; any other has its
value or its default. Repeated fields are lists, maps are maps in the order of their keys, messages structs, enums
their names (a number without a name is its digits), unsigned integers the next wider type. `Timestamp` is a
timestamp, `Duration` a number of microseconds, a wrapper the value in it.

Invariant: an array is built from the messages' own values in their order, so equal messages give equal rows. The
shapes of a message type, which `vectors` goes by, are its fields in the order of its columns, and each has that
column's type.

>>> from google.protobuf.timestamp_pb2 import Timestamp
>>> columns = columns_of(Timestamp.DESCRIPTOR)
>>> {name: build([Timestamp(seconds=5)]).to_pylist() for name, build in columns.builds.items()}
{'seconds': [5], 'nanos': [0]}
>>> shapes = shapes_of(Timestamp.DESCRIPTOR, [pa.int64(), pa.int32()])
>>> [(shape.number, shape.role, str(shape.of)) for shape in shapes]
[(1, 'number', 'int64'), (2, 'number', 'int32')]

A field may be called like what a message has anyway: in our classes such a field is spelled otherwise. In Python the
fields of a message are attributes beside its methods, and which of two with one name is found depends on who wrote
it: a field `HasField` hides the method, or the method hides the field. Names are not on the wire, so `respell` gives
those fields other ones before a class is made. `spelled` never gives the name of a method, and
`unspelled(spelled(name)) == name` for every name: a name that looks spelled already is spelled once more. Columns
have the name that the schema has.

>>> spelled("amount"), spelled("HasField"), spelled("HasField_field"), unspelled("HasField_field_field")
('amount', 'HasField_field', 'HasField_field_field', 'HasField_field')
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn

import numpy as np
import pyarrow as pa

from tidegauge.errors.formats import SchemaWithoutColumns

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

__all__ = [
    "FIXED",
    "LENGTH",
    "VARINT",
    "Build",
    "Columns",
    "FieldShape",
    "columns_of",
    "is_time",
    "is_wrapper",
    "respell",
    "shapes_of",
    "spelled",
    "unspelled",
]

_MARK: Final = "_field"


def spelled(name: str) -> str:
    """Return the name of a field's attribute."""
    return name + _MARK if _is_marked(name) else name


def unspelled(name: str) -> str:
    """Return the name of the field that an attribute is of."""
    return name.removesuffix(_MARK) if _is_marked(name) else name


def respell(message: Any) -> None:
    """Spell the fields of a `DescriptorProto`, and of those inside it."""
    for each in message.field:
        each.name = spelled(each.name)
    for inner in message.nested_type:
        respell(inner)


def _is_marked(name: str) -> bool:
    stem = name
    while stem.endswith(_MARK):
        stem = stem.removesuffix(_MARK)
    return stem in _attributes()


@lru_cache(maxsize=1)
def _attributes() -> frozenset[str]:
    """Return what every message has, by the example of one without fields."""
    from google.protobuf.empty_pb2 import Empty

    return frozenset(dir(Empty))


MAX_DEPTH: Final = 32
MAX_FIELDS: Final = 10_000

_UNSIGNED: Final = pa.decimal128(20, 0)
_SCALARS: Final[Mapping[int, Any]] = {
    **dict.fromkeys((5, 15, 17), pa.int32()),
    **dict.fromkeys((3, 7, 13, 16, 18), pa.int64()),
    **dict.fromkeys((4, 6), _UNSIGNED),
    1: pa.float64(),
    2: pa.float32(),
    8: pa.bool_(),
    9: pa.string(),
    12: pa.binary(),
    14: pa.string(),
}
"""By the number of the type in descriptor.proto; there is none for groups and messages."""

_WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_TIMES: Final[Mapping[str, Any]] = {
    "google.protobuf.Timestamp": pa.timestamp("us", "UTC"),
    "google.protobuf.Duration": pa.int64(),
}

Values = Sequence[Any]
Build = Callable[[Values], Any]
"""Makes an array of values of a field; None is null."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The fields of a message type: their types, and how to build their arrays. required: whether any must be."""

    types: Mapping[str, Any]
    builds: Mapping[str, Build]
    required: bool


def columns_of(found: Descriptor) -> Columns:
    """Return the columns of a message type. Raises `SchemaWithoutColumns`."""
    builder = _ColumnBuilder()
    names, types, builds = builder.message(found, (), "")
    return Columns(dict(zip(names, types, strict=True)), dict(zip(names, builds, strict=True)), builder.required)


class _ColumnBuilder:
    """Walks message types. `required` says whether a field is that must be there."""

    def __init__(self) -> None:
        self.required = False
        self._fields = 0

    def message(
        self, found: Descriptor, above: tuple[str, ...], path: str
    ) -> tuple[list[str], list[Any], list[Build]]:
        if found.full_name in above:
            _refuse(path, f"the message {found.full_name} contains itself")
        if not found.fields:
            _refuse(path or found.full_name, "a message without fields")
        names, types, builds = [], [], []
        for each in found.fields:
            self._fields += 1
            if self._fields > MAX_FIELDS or len(above) > MAX_DEPTH:
                _refuse(path, f"more than {MAX_FIELDS} fields, or nested more than {MAX_DEPTH} deep")
            self.required |= each.is_required
            name = unspelled(each.name)
            of, build = self.field(each, (*above, found.full_name), f"{path}{name}")
            names.append(name)
            types.append(of)
            builds.append(build)
        return names, types, builds

    def field(self, field: FieldDescriptor, above: tuple[str, ...], path: str) -> tuple[Any, Build]:
        """Return the type of a field, and how to build its array from messages."""
        get = attrgetter(field.name)
        inner = field.message_type
        if inner is not None and inner.GetOptions().map_entry:
            key, value = inner.fields_by_name["key"], inner.fields_by_name["value"]
            key_type, keys = self.value(key, above, f"{path}.key")
            item_type, items = self.value(value, above, f"{path}.value")
            of = pa.map_(key_type, item_type)
            return of, lambda messages: _map(messages, get, keys, items, of)
        value_type, build = self.value(field, above, path)
        if field.is_repeated:
            of = pa.list_(value_type)
            return of, lambda messages: _list(messages, get, build, of)
        if not field.has_presence:
            return value_type, lambda messages: build(list(map(get, messages)))
        name = field.name
        return value_type, lambda messages: build([get(m) if m.HasField(name) else None for m in messages])

    def value(self, field: FieldDescriptor, above: tuple[str, ...], path: str) -> tuple[Any, Build]:
        """Return the type of one value of a field, and how to build an array of such values."""
        inner = field.message_type
        if inner is None:
            of = _SCALARS[field.type]
            if field.enum_type is not None:
                symbols = {number: value.name for number, value in field.enum_type.values_by_number.items()}
                return of, lambda values: pa.array(
                    [None if n is None else symbols.get(n, str(n)) for n in values], of
                )
            return of, lambda values: pa.array(values, of)
        if is_time(inner):
            time = _TIMES[inner.full_name]
            return time, lambda values: pa.array(
                [None if v is None else v.seconds * 1_000_000 + v.nanos // 1000 for v in values], time
            )
        if is_wrapper(inner):
            of, build = self.value(inner.fields_by_name["value"], above, path)
            return of, lambda values: build([None if v is None else v.value for v in values])
        names, types, builds = self.message(inner, above, f"{path}.")
        of, empty = pa.struct(list(zip(names, types, strict=True))), _empty(inner)
        return of, lambda values: _struct(values, builds, of, empty)


def is_time(found: Descriptor) -> bool:
    """Whether a type is one of a time: it has the name, and also the fields, for a descriptor may say anything."""
    return found.full_name in _TIMES and [(each.name, each.type, each.is_repeated) for each in found.fields] == [
        ("seconds", 3, False),
        ("nanos", 5, False),
    ]


def is_wrapper(found: Descriptor) -> bool:
    """Whether a type is one that wraps a value which may be absent."""
    return found.full_name in _WRAPPERS and [each.name for each in found.fields] == ["value"]


def _empty(found: Descriptor) -> Any:
    from google.protobuf.message_factory import GetMessageClass

    return GetMessageClass(found)()


def _struct(values: Values, builds: list[Build], of: Any, empty: Any) -> Any:
    """Build structs; below one that is null, its fields are those of an empty message."""
    there = [empty if value is None else value for value in values]
    absent = pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays([build(there) for build in builds], fields=list(of), mask=absent)


def _list(messages: Values, get: Callable[[Any], Any], build: Build, of: Any) -> Any:
    lists = list(map(get, messages))
    return pa.ListArray.from_arrays(_offsets(lists), build(list(chain.from_iterable(lists))), type=of)


def _map(messages: Values, get: Callable[[Any], Any], keys: Build, items: Build, of: Any) -> Any:
    # Protobuf keeps the entries of a map in an order of its own, another one in each process.
    maps = [sorted(get(message).items(), key=itemgetter(0)) for message in messages]
    entries = list(chain.from_iterable(maps))
    built = keys([key for key, _ in entries]), items([item for _, item in entries])
    return pa.MapArray.from_arrays(_offsets(maps), *built, type=of)


def _offsets(lists: list[Any]) -> Any:
    sizes = np.fromiter(map(len, lists), np.int64, len(lists))
    return pa.array(np.concatenate(([0], np.cumsum(sizes))), pa.int32())


def _refuse(path: str, detail: str) -> NoReturn:
    raise SchemaWithoutColumns(path=path.removesuffix(".") or "the top level", kind="Protobuf", detail=detail)


VARINT: Final = 0
LENGTH: Final = 2
FIXED: Final[Mapping[int, int]] = {1: 8, 5: 4}
"""The wire types of numbers with a fixed size, and the sizes."""

_WIRES: Final[Mapping[int, int]] = {
    **dict.fromkeys((3, 4, 5, 8, 13, 14, 17, 18), VARINT),
    **dict.fromkeys((1, 6, 16), 1),
    **dict.fromkeys((2, 7, 15), 5),
    **dict.fromkeys((9, 11, 12), LENGTH),
    10: 3,
}
"""By the number of the type in descriptor.proto."""
_SPANS: Final = (9, 12)

Role = Literal["number", "span", "enum", "struct", "time", "boxed"]


@dataclass(frozen=True, slots=True)
class FieldShape:
    """A field. `of` is the type of one value; `inner` are the fields of a message, `symbols` the names of an enum."""

    number: int
    kind: int
    wire: int
    role: Role
    of: Any
    many: bool = False
    map: Any = None
    presence: bool = False
    required: bool = False
    group: str = ""
    inner: tuple[FieldShape, ...] = ()
    symbols: Mapping[int, str] = field(default_factory=dict)

    def default(self) -> Any:
        """Return the value of a field without presence that is not there, as an array of one."""
        if self.role == "span":
            return pa.array([b""]).cast(self.of)
        return pa.array([self.symbols.get(0)], self.of) if self.role == "enum" else pa.array([0]).cast(self.of)


def shapes_of(found: Descriptor, types: Iterable[Any]) -> tuple[FieldShape, ...]:
    """Return the shapes of a message type whose columns have these types."""
    return tuple(_shape(field, of) for field, of in zip(found.fields, types, strict=True))


def _shape(field: FieldDescriptor, of: Any) -> FieldShape:
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        key = _shape(inner.fields_by_name["key"], of.key_type)
        value = _shape(inner.fields_by_name["value"], of.item_type)
        # Where the value is not there it is an empty message, which is rare.
        value = replace(value, presence=False, required=bool(value.inner))
        key = replace(key, presence=False)
        return FieldShape(field.number, field.type, LENGTH, "struct", of, many=True, map=of, inner=(key, value))
    value_type = of.value_type if field.is_repeated else of
    common: dict[str, Any] = {
        "many": field.is_repeated,
        "presence": field.has_presence and not field.is_repeated,
        "required": field.is_required,
        "group": field.containing_oneof.name if field.containing_oneof is not None else "",
    }
    place = (field.number, field.type, _WIRES[field.type])
    if inner is None:
        if field.enum_type is not None:
            symbols = {number: value.name for number, value in field.enum_type.values_by_number.items()}
            return FieldShape(*place, "enum", value_type, symbols=symbols, **common)
        return FieldShape(*place, "span" if field.type in _SPANS else "number", value_type, **common)
    if is_time(inner):
        return FieldShape(*place, "time", value_type, inner=shapes_of(inner, (pa.int64(), pa.int32())), **common)
    if is_wrapper(inner):
        return FieldShape(*place, "boxed", value_type, inner=shapes_of(inner, (value_type,)), **common)
    inner_types = [each.type for each in value_type]
    return FieldShape(*place, "struct", value_type, inner=shapes_of(inner, inner_types), **common)
