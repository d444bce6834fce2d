"""The findings of one look at the disk, as they come together.

Invariant: `details` are the facts that are not durable yet, so the next binding makes all of them durable; `known`
are those that the look started from, durable or only told by the look before. So the driver remembers unbound facts
while it runs, and the store remembers them from the next binding on.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from tidegauge.errors.sources import FileRewritten
from tidegauge.remap.binding import Bound, Detail
from tidegauge.sources.file.holding import OpenFiles
from tidegauge.sources.file.identity import FileFacts
from tidegauge.sources.file.listing import printable
from tidegauge.sources.formats.protocol import Format, LineFormat

__all__ = ["Rules", "Survey"]


@dataclass(frozen=True, slots=True)
class Rules:
    """By what a look goes. settle, now: nanoseconds. limit: bytes. stop: whether a loss ends the source."""

    format: Format
    line: LineFormat | None
    settle: int
    limit: int
    now: int
    need_columns: bool
    stop: bool


@dataclass(slots=True)
class Survey:
    """What one probe found. `columns` is set when they were asked for and could be inferred.

    lost: how many bytes went with files that are gone, by partition; `positions` have passed them. taken_back: bytes
    that were cut off from existing files. here: partitions whose files are. anew: logs whose files have begun anew,
    with the error if the rest of the old content may have been rewritten rather than moved away. awaited: logs that
    are being compressed. at_rest: whether the status of the files was enough; see `resting`.
    """

    held: OpenFiles
    durable: dict[str, Detail]
    known: dict[str, Detail]
    details: dict[str, Detail]
    positions: dict[str, int]
    ends: dict[str, int]
    gone: dict[str, int] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)
    taken_back: dict[str, tuple[int, int]] = field(default_factory=dict)
    here: dict[str, str] = field(default_factory=dict)
    anew: dict[str, FileRewritten | None] = field(default_factory=dict)
    awaited: set[str] = field(default_factory=set)
    columns: pa.Schema | None = None
    more: bool = False
    notes: list[str] = field(default_factory=list)
    unfinished: list[tuple[str, int]] = field(default_factory=list)
    taken: int = 0
    full: bool = False
    at_rest: bool = True

    @classmethod
    def of(cls, bound: Bound, held: OpenFiles) -> Survey:
        """Return a look that has not begun."""
        durable = dict(bound.details)
        told = {} if bound.last is None else bound.last.details
        details = {key: detail for key, detail in told.items() if durable.get(key) != detail}
        return cls(held, durable, {**durable, **details}, details, dict(bound.frontier), dict(bound.frontier))

    def tell(self, key: str, detail: Detail) -> None:
        """Keep the present facts of a file."""
        if self.durable.get(key) == detail:
            self.details.pop(key, None)
        else:
            self.details[key] = detail

    def facts(self, key: str) -> FileFacts:
        """Return the facts of a file, by this look or before it."""
        return FileFacts.of(self.details.get(key) or self.known[key])

    def note(self) -> str:
        """Return one line for people about what the source is waiting for."""
        notes = list(self.notes[:3])
        if len(self.notes) > 3:
            notes.append(f"and {len(self.notes) - 3} more")
        if self.unfinished:
            path, size = self.unfinished[0]
            rest = f" (and in {len(self.unfinished) - 1} more files)" if len(self.unfinished) > 1 else ""
            notes.append(f"{size} bytes of an unfinished last line in {printable(path)}{rest}")
        return "; ".join(notes)
