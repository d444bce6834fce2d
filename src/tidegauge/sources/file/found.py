"""What one look at the disk finds, and what it misses.

Invariant: `details` are the facts that are not durable yet, so the next binding makes all of them durable; `known`
are those that the look started from, durable or only told by the look before. So the driver remembers unbound facts
while it runs, and the store remembers them from the next binding on.

If a file disappears with bytes that had been seen and not read, that is a loss (law 9), whether they were bound or
not. Unbound ones are bound now, up to the end that was seen: so the loss has an epoch and a range, as every loss has,
and it is found when the range is to be read. There the source fails, or goes on with a row of `gaps`. Nothing in a
folder that is away is reported lost: a mount may come back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from tidegauge.errors.sources import FileGone, FileRewritten, FolderAway
from tidegauge.remap.binding import Bound, Detail
from tidegauge.sources.file.disk import Disk
from tidegauge.sources.file.identity import FileFacts
from tidegauge.sources.file.listing import printable
from tidegauge.sources.file.memory import OpenFiles
from tidegauge.sources.formats.protocol import Format, LineFormat

__all__ = ["Rules", "Survey", "give_up", "refuse_all_away", "refuse_away", "unread"]


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
    are being compressed. at_rest: whether the status of the files was enough; see `memory`.
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


def unread(found: Survey) -> dict[str, Detail]:
    """Return the known files that are not here, and were not bound to the end."""
    return {
        key: detail
        for key, detail in found.known.items()
        if key not in found.here and int(detail.get("size", 0)) > found.positions.get(key, 0)
    }


def give_up(missing: Mapping[str, Detail], rules: Rules, found: Survey) -> None:
    """Bind files that are gone to their end. Raises `FileGone` where nothing can be bound yet."""
    for key, detail in missing.items():
        path, lower, upper = str(detail["path"]), found.positions.get(key, 0), int(detail["size"])
        if rules.need_columns and found.columns is None:
            if rules.stop:
                raise FileGone(path=path, lower=lower, upper=upper)
            found.taken_back[key] = (lower, upper)
            found.tell(key, {**(found.details.get(key) or detail), "size": lower})
            continue
        found.positions[key] = found.ends[key] = upper
        found.lost[key] = upper - lower
        found.notes.insert(0, f"{printable(path)} is gone, with {upper - lower} bytes that were not read")


def refuse_all_away(missing: Mapping[str, Detail], found: Survey) -> None:
    """Raise `FolderAway` where files of a look are missing with their folder."""
    here = {str(Path(str(found.known[key]["path"])).parent) for key in found.here if key in found.known}
    refuse_away(missing.values(), found.held.disk, here=here.__contains__)


def refuse_away(missing: Iterable[Detail], disk: Disk, *, here: Callable[[str], bool]) -> None:
    """Raise `FolderAway` where files are missing with the whole folder or disk that they were in.

    here: whether a file that is known is in a folder, which then is the same as before.
    """
    folders: defaultdict[str, list[Detail]] = defaultdict(list)
    for detail in missing:
        folders[str(Path(str(detail["path"])).parent)].append(detail)
    for folder, details in folders.items():
        what = ""
        try:
            device = disk.stat(folder).st_dev
        except (FileNotFoundError, NotADirectoryError):
            what = "not there"
        else:
            if all(detail["dev"] != device for detail in details) and not here(folder):
                what = "on another file system than they were"
        if what:
            raise FolderAway(folder=folder, what=what, count=len(details), path=details[0]["path"])
