"""What the tests of formats share: reading a range, and the rows with their positions and the bad records."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

Found = tuple[list[tuple[int, dict[str, Any]]], list[tuple[int, bytes]]]
Reader = Callable[..., Found]


def _read(
    format: Any, data: bytes, *, lower: int = 0, upper: int | None = None, schema: Any = None, **sizes: int
) -> Found:
    """Return `[(position, row)]` and `[(position, raw)]` of a range, read from a stream that cannot seek."""
    bad: list[tuple[int, bytes]] = []
    rows: list[tuple[int, dict[str, Any]]] = []
    stream = Forward(data[lower:])
    given: dict[str, Any] = {
        "lower": lower,
        "upper": upper,
        "header": format.header(io.BytesIO(data)),
        "schema": format.schema if schema is None else schema,
        "on_bad": lambda position, raw, problem: (
            bad.append((position, raw)) if problem else pytest.fail("no problem")
        ),
    }
    if sizes:
        given |= sizes
        decoded = _small(format, stream, given)
    else:
        decoded = format.decode(stream, **given)
    for part in decoded:
        assert part.rows.schema == given["schema"]
        assert part.positions.type == pa.int64()
        part.rows.validate(full=True)
        rows.extend(zip(part.positions.to_pylist(), part.rows.to_pylist(), strict=True))
    assert [position for position, _ in rows] == sorted({position for position, _ in rows})
    return rows, bad


def _small(format: Any, stream: Any, given: dict[str, Any]) -> Any:
    from tidegauge.sources.formats.json import Json, decode_lines

    if isinstance(format, Json):
        given.pop("header")
        return decode_lines(stream, **given)
    return format._decode(stream, **given)


class Forward(io.RawIOBase):
    """A stream that cannot seek and gives its bytes in dribs and drabs."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        return self._data.read(size if size < 8 else max(1, size * 2 // 3))


@pytest.fixture(scope="session")
def read() -> Reader:
    return _read


Decoded = tuple[list[tuple[int, dict[str, Any]]], list[tuple[int, str, str]]]
Decoder = Callable[..., Decoded]


def _decode(format: Any, values: Sequence[bytes | None], *, schema: Any = None) -> Decoded:
    """Return `[(index, row)]` and `[(index, code, problem)]` of messages; check what holds for every format."""
    bad: list[tuple[int, str, str]] = []
    wanted = format.schema if schema is None else schema
    found = format.decode_messages(values, schema=wanted, on_bad=lambda *problem: bad.append(problem))
    found.rows.validate(full=True)
    assert found.rows.schema == wanted
    everyone = found.indices is None
    indices = list(range(len(values))) if everyone else found.indices.to_pylist()
    assert everyone or found.indices.type == pa.int64()
    assert sorted([*indices, *(i for i, _, _ in bad)]) == list(range(len(values)))
    assert indices == sorted(indices)
    assert bad == sorted(bad)
    assert all(code.startswith("TG-") and text for _, code, text in bad)
    return list(zip(indices, found.rows.to_pylist(), strict=True)), bad


@pytest.fixture(scope="session")
def decode() -> Decoder:
    return _decode
