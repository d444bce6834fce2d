"""How a sink keeps the rows that it is given, as its arguments say: all of them, or of each key the last.

Invariant: what passes here is a whole answer. An upsert has a key, and a sink that adds rows has no argument that
would mean nothing to it.

>>> named_columns("KafkaSink", "key", ["region", "id"])
('region', 'id')
>>> check_envelope("DeltaSink", "append", None, {"order": "at"})
Traceback (most recent call last):
tidegauge.errors.flow.InvalidArgument: TG-0105: DeltaSink(order) cannot be 'at'
...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

from tidegauge.errors.flow import InvalidArgument

__all__ = ["Envelope", "KafkaEnvelope", "check_envelope", "named_columns"]

Envelope: TypeAlias = Literal["append", "upsert"]
KafkaEnvelope: TypeAlias = Literal["append", "upsert", "debezium"]


def check_envelope(
    sink: str,
    envelope: Any,
    key: str | Sequence[str] | None,
    keyed: Mapping[str, object],
    *,
    known: Sequence[str] = get_args(Envelope),
) -> None:
    """Raise `InvalidArgument` unless these arguments of a sink go together.

    keyed: those that mean something only where there is a key, by their names. known: the sink's envelopes.
    """
    if envelope not in known:
        raise _invalid(sink, "envelope", envelope, " or ".join(map(repr, known)))
    if envelope != "append" and key is None:
        raise _invalid(sink, "key", None, f"the key of {envelope!r}: a column, or several")
    for name, value in keyed.items():
        if envelope == "append" and value is not None:
            raise _invalid(sink, name, value, f"it together with envelope={' or '.join(map(repr, known[1:]))}")


def named_columns(sink: str, name: str, given: Any) -> str | tuple[str, ...] | None:
    """Return the columns that an argument names, several as a tuple. Raises `InvalidArgument`."""
    if given is None or (isinstance(given, str) and given):
        return given
    columns = tuple(given) if isinstance(given, Sequence) and not isinstance(given, str | bytes) else ()
    if not columns or len(set(columns)) < len(columns) or not all(isinstance(one, str) and one for one in columns):
        raise _invalid(sink, name, given, "a column, or several, each once")
    return columns


def _invalid(sink: str, name: str, value: Any, expected: str) -> InvalidArgument:
    return InvalidArgument(parameter=f"{sink}({name})", value=value, expected=expected)
