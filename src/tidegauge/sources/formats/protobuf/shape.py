r"""What a Protobuf field looks like on the wire, and which array it becomes: what `vectors` goes by.

Invariant: the shapes of a message type are its fields in the order of its columns, and each has that column's type.

>>> from google.protobuf.timestamp_pb2 import Timestamp
>>> shapes = shapes_of(Timestamp.DESCRIPTOR, [pa.int64(), pa.int32()])
>>> [(shape.number, shape.role, str(shape.of)) for shape in shapes]
[(1, 'number', 'int64'), (2, 'number', 'int32')]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa

from tidegauge.sources.formats.protobuf.columns import is_time, is_wrapper

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

__all__ = ["FIXED", "LENGTH", "VARINT", "FieldShape", "shapes_of"]

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
