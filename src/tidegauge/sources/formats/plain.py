r"""Messages unchanged: bytes, or text that must be UTF-8. The one column is called `value`.

Invariant: `Raw` has no bad records; those of `Text` are the values that are not UTF-8. No byte is changed.

>>> Text().decode_messages([b"tide", b"\xff", None], schema=Text().schema, on_bad=print).rows.to_pylist()
1 TG-0323 not valid UTF-8
[{'value': 'tide'}, {'value': None}]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidegauge.errors.sources import UnreadableRecord
from tidegauge.sources.formats.gather import Refused, in_pieces
from tidegauge.sources.formats.messages import MessageRows, OnBadMessage

__all__ = ["Raw", "Text"]

_RAW: Final = pa.schema([("value", pa.binary())])
_TEXT: Final = pa.schema([("value", pa.string())])


@dataclass(frozen=True, slots=True)
class Raw:
    """Messages as one column of bytes, `value`."""

    @property
    def schema(self) -> pa.Schema:
        """One column, `value BINARY`."""
        return _RAW

    def describe(self) -> Mapping[str, Any]:
        """Return the configuration as JSON."""
        return {"format": "raw"}

    def infer_messages(self, values: Sequence[bytes | None]) -> pa.Schema:  # noqa: ARG002 - the seam's shape
        """Return the one column."""
        return _RAW

    def decode_messages(
        self, values: Sequence[bytes | None], *, schema: pa.Schema, on_bad: OnBadMessage
    ) -> MessageRows:
        """Return the values."""
        del on_bad
        return MessageRows(pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], schema=schema), None)


@dataclass(frozen=True, slots=True)
class Text:
    """Messages as one column of text, `value`; one that is not UTF-8 is a bad record."""

    @property
    def schema(self) -> pa.Schema:
        """One column, `value STRING`."""
        return _TEXT

    def describe(self) -> Mapping[str, Any]:
        """Return the configuration as JSON."""
        return {"format": "text"}

    def infer_messages(self, values: Sequence[bytes | None]) -> pa.Schema:  # noqa: ARG002 - the seam's shape
        """Return the one column."""
        return _TEXT

    def decode_messages(
        self, values: Sequence[bytes | None], *, schema: pa.Schema, on_bad: OnBadMessage
    ) -> MessageRows:
        """Return the values, checked as a whole; only where that fails, in pieces."""
        array: Any = pa.array(values, pa.binary())
        kept = np.ones(len(array), np.bool_)
        pieces: list[Any] = []

        def take(i: int, j: int) -> None:
            try:
                pieces.append(array.slice(i, j - i).cast(pa.string()))
            except pa.ArrowInvalid as error:
                raise Refused("not valid UTF-8") from error

        def refuse(i: int, refusal: Refused) -> None:
            kept[i] = False
            on_bad(i, UnreadableRecord.code, str(refusal))

        in_pieces(len(array), take, refuse)
        text = pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces) if pieces else pa.array([], pa.string())
        rows = pa.RecordBatch.from_arrays([text], schema=schema)
        return MessageRows(rows, None if kept.all() else pa.array(np.flatnonzero(kept)))
