"""Scouting: before records are bound, they are gone through for columns that their source does not have yet.

Only sources whose columns are inferred are scouted, and only where some output takes columns on (`flow.columns`). A
look's findings are not bound until a scout has been through them, in the same thread; an epoch takes no more than
that. If there are further columns, the observation says so, and nothing of it is bound before they are settled.
So the first record that has a column is in the first epoch that has it.

Law: no record is bound before its columns are known. So they follow from its position, as ever, and a job that is
tried again, a late output and a rebuilt table read it by the same ones.

What cannot be read has no columns, and is left for the job that reads it to say so. A `Transient` error stalls the
source like one of its look: a registry that is away, say.

>>> import tempfile, pathlib, datetime
>>> from tidegauge.sources import FileSource, Json
>>> with tempfile.TemporaryDirectory() as folder:
...     _ = pathlib.Path(folder, "a.jsonl").write_text('{"id": 1}\\n{"id": 2, "note": "new"}\\n')
...     source = FileSource(f"{folder}/*.jsonl", format=Json())
...     bound = Bound(schema=pa.schema([("id", pa.int64())]))
...     observed = source.probe(bound, now=datetime.datetime.now(datetime.UTC))
...     scouted("orders", source, bound, observed).schema.names
['id', 'note']
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, Final, Protocol, runtime_checkable

import pyarrow as pa

from tidegauge.errors.base import TidegaugeError, Transient
from tidegauge.reclock.parts import taken
from tidegauge.remap.binding import Bound, Observation, Slice
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.abilities import Cuttable
from tidegauge.sources.protocol import Source, Split

__all__ = ["SCOUTED", "Telling", "is_telling", "scouted"]

SCOUTED: Final = {"bytes": 128 << 20, "records": 500_000}
"""How many positions are gone through at once, by what they count: about a second's work."""


@runtime_checkable
class Telling(Protocol):
    """A source that may tell which further columns records have."""

    @property
    def tells(self) -> bool:
        """Whether its columns are inferred, and it can. A constant."""
        ...

    def further(self, split: Any, columns: pa.Schema, /) -> pa.Schema:
        """Return columns, and those that the records of a split have besides, where they have values.

        A column that is known keeps its place, its name and its type; fields of structs may be new. Called in a
        thread of the driver beside the worker, right after `probe`. Raises what `Source.read` raises.
        """
        ...


def is_telling(source: Source) -> bool:
    """Whether a source tells of further columns."""
    return isinstance(source, Telling) and source.tells


def scouted(
    name: str, source: Source, bound: Bound, observed: Observation, *, passed_over: pa.Schema | None = None
) -> Observation:
    """Return an observation once all that may be bound was gone through, with the columns if there are others.

    passed_over: the columns that were found before, where some are not taken on. Raises what stalls a source.
    """
    known = bound.schema or observed.schema
    ahead = [Slice(name, 0, key, *span) for key, span in observed.upper.since(bound.frontier).items()]
    if known is None or not ahead or not isinstance(source, Telling):
        return observed
    after = replace(
        bound,
        frontier=observed.upper,
        details={**bound.details, **observed.details},
        identity=bound.identity or observed.identity,
        state=observed.state or bound.state,
        schema=known,
        last=observed,
    )
    pieces = _some(source, ahead, after)
    columns = within = passed_over or known
    for split in _splits(source, pieces, after):
        try:
            columns = source.further(split, columns)
        except Transient:
            raise
        except TidegaugeError:
            continue
    if pieces != ahead:
        upper = Frontier({**bound.frontier, **{piece.partition: piece.upper for piece in pieces}})
        observed = replace(observed, upper=upper, more=True)
    if columns.equals(within):
        return observed
    return replace(observed, schema=columns)


def _some(source: Source, ahead: list[Slice], bound: Bound) -> list[Slice]:
    """Return the first of these slices, as many positions as are gone through at once."""
    most = SCOUTED["bytes" if source.unit == "bytes" else "records"]
    if not isinstance(source, Cuttable):
        return taken(ahead, most, size=attrgetter("size"), cut=lambda _piece, _size: None)
    return taken(
        ahead,
        most,
        size=lambda piece: source.size(piece, bound),
        cut=lambda piece, size: source.cut(piece, size, bound),
    )


def _splits(source: Source, pieces: Sequence[Slice], bound: Bound) -> Iterator[Split]:
    """Yield the splits of slices, without those of one that cannot be planned."""
    try:
        yield from source.plan(pieces, bound)
    except Transient:
        raise
    except TidegaugeError:
        for piece in pieces if len(pieces) > 1 else ():
            yield from _splits(source, [piece], bound)
