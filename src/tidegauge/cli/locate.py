"""`tidegauge locate` and `tidegauge trace`: a record's place and a row's origin, for people and as JSON.

Invariant: what comes from data or from file names is shown as text on one line, whatever is in it.

>>> conditions(["id=3", "note=a=b"]), shown("a\\nb"), shown("ü")
({'id': '3', 'note': 'a=b'}, "'a\\\\nb'", 'ü')
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from tidegauge.cli.show import clock, error_json, errors_view, grid, iso

if TYPE_CHECKING:
    from tidegauge.looking.locate import Holding, Origin, Place
    from tidegauge.looking.read import Trace, TracedRow
    from tidegauge.looking.reports import SliceReport

__all__ = ["conditions", "place_json", "place_view", "plain", "shown", "trace_json", "trace_view"]

_LONGEST: Final = 80
_RANGES: Final = 5


def conditions(given: Sequence[str]) -> dict[str, str]:
    """Return the values by column of texts like `id=3`. Raises `BadParameter`, which is bad usage."""
    values: dict[str, str] = {}
    for text in given:
        column, equals, value = text.partition("=")
        if not column or not equals:
            raise typer.BadParameter(f"{text!r} is not like id=3", param_hint="COLUMN=VALUE")
        if column in values:
            raise typer.BadParameter(f"two values for {column!r}", param_hint="COLUMN=VALUE")
        values[column] = value
    return values


def shown(value: object) -> str:
    """Return a value as one line of bounded length; a text that a terminal would not show literally, quoted."""
    text = "null" if value is None else repr(value) if isinstance(value, bytes) else str(value)
    text = text if text.isprintable() else repr(text)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def place_view(place: Place, unit: str) -> RenderableType:
    """Return a place as tables."""
    head = Text.assemble(
        *_epoch(place.epoch, place.minted_at, place.published_at, exact=place.exact),
        f"{_where(place, unit)}\n",
    )
    tables = grid("output", "holds it", "version", "rows of the epoch")
    for one in place.tables:
        rows = "?" if one.rows is None else f"{one.rows:,}"
        if one.epoch is not None:
            rows += f" (as epoch {one.epoch})"
        tables.add_row(one.output, "yes" if one.holds else "no", one.version or "-", rows)
    return Group(head, tables, *errors_view([one.error for one in place.tables]))


def place_json(place: Place) -> dict[str, Any]:
    """Return a place as data."""
    return {
        "source": place.source,
        "incarnation": place.incarnation,
        "epoch": place.epoch,
        "exact": place.exact,
        "partition": place.partition,
        "path": place.path,
        "position": place.position,
        "minted_at": iso(place.minted_at),
        "published_at": iso(place.published_at),
        "tables": [_holding(table) for table in place.tables],
    }


def trace_view(found: Trace, asked: Mapping[str, str]) -> RenderableType:
    """Return rows, each with its origin, as lines."""
    if not found.rows:
        values = ", ".join(f"{column} = {shown(value)}" for column, value in asked.items())
        return Text(f"no row of {found.output} has {values}, of the epochs to {found.epoch}")
    lines: list[RenderableType] = []
    for one in found.rows:
        lines += [_row(one, found.output), *([] if one is found.rows[-1] else [Text()])]
    if found.more:
        lines.append(Text(f"\nthese are the first {len(found.rows)}; there are more", style="yellow"))
    return Group(*lines)


def trace_json(found: Trace) -> dict[str, Any]:
    """Return rows, each with its origin, as data."""
    return {
        "output": found.output,
        "as_of": found.epoch,
        "more": found.more,
        "found": [
            {
                "row": {column: plain(value) for column, value in one.row.items()},
                "origin": None if one.origin is None else _origin_json(one.origin),
                "error": None if one.error is None else error_json(one.error),
            }
            for one in found.rows
        ],
    }


def _epoch(epoch: int, minted_at: datetime | None, published_at: datetime | None, *, exact: bool) -> list[Any]:
    earlier = "" if exact else " or before: history is compacted up to there"
    times = f"  minted {clock(minted_at)}, published {clock(published_at)} (UTC)\n"
    return [(f"epoch {epoch}", "bold"), earlier, times]


def _line(text: str) -> str:
    """Return a text for copying: whole, and quoted if a terminal would not show it literally."""
    return text if text.isprintable() else repr(text)


def _row(one: TracedRow, output: str) -> Text:
    columns = "  ".join(f"{column}={shown(value)}" for column, value in one.row.items())
    text = Text(columns, style="bold")
    if one.origin is not None:
        return Text("\n  ").join([text, *map(Text, _origin_lines(one.origin, output))])
    said = "" if one.error is None else f"{one.error.code}: {one.error.summary}"
    return Text("\n  ").join([text, Text(said, style="red")])


def _origin_lines(origin: Origin, output: str) -> list[str]:
    head = f"epoch {origin.epoch}, minted {clock(origin.minted_at)}, published {clock(origin.published_at)} (UTC)"
    if (place := origin.place) is None:
        lines = [f"{origin.source}, within {_range(piece)}" for piece in origin.slices[:_RANGES]]
        rest = len(origin.slices) - _RANGES
        return [head, *lines, *([f"{origin.source}, or in one of {rest} more ranges"] if rest > 0 else [])]
    version = next((table.version for table in place.tables if table.output == output), None)
    committed = [] if version is None else [f"version {version} of the table {output}"]
    return [head, _where(place, origin.slices[0].unit), *committed]


def _where(place: Place, unit: str) -> str:
    life = f", incarnation {place.incarnation}" if place.incarnation else ""
    return f"{place.source}{life}, {_line(place.path)} at {place.position:,} {unit}"


def _range(piece: SliceReport) -> str:
    path = _line(str(piece.detail.get("path", piece.partition)))
    return f"{path}, {piece.lower:,} to {piece.upper:,} {piece.unit}"


def _origin_json(origin: Origin) -> dict[str, Any]:
    return {
        "source": origin.source,
        "epoch": origin.epoch,
        "exact": origin.exact,
        "minted_at": iso(origin.minted_at),
        "published_at": iso(origin.published_at),
        "place": None if origin.place is None else place_json(origin.place),
        "slices": [
            {"partition": p.partition, "lower": p.lower, "upper": p.upper, "unit": p.unit, "detail": dict(p.detail)}
            for p in origin.slices
        ],
    }


def _holding(one: Holding) -> dict[str, Any]:
    return {
        "output": one.output,
        "holds": one.holds,
        "version": one.version,
        "rows": one.rows,
        "epoch": one.epoch,
        "error": None if one.error is None else error_json(one.error),
    }


def plain(value: Any) -> Any:
    """Return a value of a row as JSON data: bytes as hex digits, what JSON does not have as its text."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes():
            return value.hex()
        case datetime():
            return value.isoformat()
        case list() | tuple():
            return [plain(item) for item in value]
        case dict():
            return {str(key): plain(item) for key, item in value.items()}
        case _:
            return str(value)
