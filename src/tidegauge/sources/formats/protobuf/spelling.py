r"""A field may be called like what a message has anyway: in our classes such a field is spelled otherwise.

In Python the fields of a message are attributes beside its methods, and which of two with one name is found depends
on who wrote it: a field `HasField` hides the method, or the method hides the field. Names are not on the wire, so
`respell` gives those fields other ones before a class is made.

Invariant: `spelled` never gives the name of a method, and `unspelled(spelled(name)) == name` for every name: a name
that looks spelled already is spelled once more. Columns have the name that the schema has.

>>> spelled("amount"), spelled("HasField"), spelled("HasField_field"), unspelled("HasField_field_field")
('amount', 'HasField_field', 'HasField_field_field', 'HasField_field')
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

__all__ = ["respell", "spelled", "unspelled"]

_MARK: Final = "_field"


def spelled(name: str) -> str:
    """Return the name of a field's attribute."""
    return name + _MARK if _is_marked(name) else name


def unspelled(name: str) -> str:
    """Return the name of the field that an attribute is of."""
    return name.removesuffix(_MARK) if _is_marked(name) else name


def respell(message: Any) -> None:
    """Spell the fields of a `DescriptorProto`, and of those inside it."""
    for field in message.field:
        field.name = spelled(field.name)
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
