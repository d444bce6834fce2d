"""Which known logs a file may be, by its name, and the consequences; see `returning` for the rules.

Invariant: each file that continues a log continues one log, the one whose bound end it fits best.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from tidegauge.errors.sources import EndTakenBack
from tidegauge.sources.file.admitting import grow
from tidegauge.sources.file.found import Rules, Survey
from tidegauge.sources.file.identity import FileFacts, Seen
from tidegauge.sources.file.listing import printable
from tidegauge.sources.file.opening import opened
from tidegauge.sources.file.returning import begins_alike, continued, originals

__all__ = ["Relations"]


@dataclass(frozen=True, slots=True)
class Relations:
    """The known logs by their paths, and by the names under which they were first and last seen."""

    paths: dict[str, list[str]]
    names: dict[str, list[str]]

    @classmethod
    def of(cls, found: Survey) -> Relations:
        """Return those of a look."""
        paths: defaultdict[str, list[str]] = defaultdict(list)
        names: defaultdict[str, list[str]] = defaultdict(list)
        for key, detail in found.known.items():
            if not detail["whole"]:
                paths[str(detail["path"])].append(key)
                for path in {str(detail["first"]), str(detail["path"])}:
                    names[Path(path).name].append(key)
        return cls(paths, names)

    def logs(self, path: str) -> list[str]:
        """Return the logs that a file may be, by its path."""
        related = [key for name in originals(Path(path).name) for key in self.names.get(name, ())]
        return list(dict.fromkeys([*self.paths.get(path, ()), *related]))

    def resolved(self, stream: BinaryIO, seen: Seen, logs: Sequence[str], rules: Rules, found: Survey) -> bool:
        """Whether an open file is one of these logs, or a copy of one, so that it is no new file."""
        if not logs or rules.line is None:
            return False
        compressed = seen.path.endswith(".gz")
        absent = [key for key in logs if _absent(key, seen, found, compressed=compressed)]
        if compressed and absent and rules.now - seen.modified < rules.settle:
            found.awaited.update(absent)
            return False
        fits: list[tuple[bool, int, str, FileFacts]] = []
        for key in absent:
            known, position = found.facts(key), found.positions.get(key, 0)
            if not position and known.ino:  # nothing of it is known by which to tell
                continue
            facts = continued(stream, seen, known, position, cut=key in found.anew)
            if facts is not None:
                fits.append((facts.size == position, position, key, facts))
        if fits:
            _end, position, key, facts = max(fits, key=lambda fit: fit[:3])
            began_anew = not found.facts(key).ino
            if began_anew:
                _lacking(facts, found.facts(key), key, position, rules, found)
            # Nobody writes to the copy of a log that began anew.
            found.tell(key, (replace(facts, final=1) if began_anew else facts).detail())
            found.here[key] = seen.path
            found.anew.pop(key, None)
            grow(stream, seen, key, rules, found)
            return True
        return any(_copies(stream, seen, key, found, compressed=compressed) for key in logs)


def _absent(key: str, seen: Seen, found: Survey, *, compressed: bool) -> bool:
    """Whether a log is without its file, in the way that a file of this path may continue it."""
    known = found.facts(key)
    held = found.here.get(key, "").startswith("/proc/")
    if known.whole or (key in found.here and not held):
        return False
    if compressed or not known.ino:
        return known.path != seen.path  # under the path of a log that began anew is what it began anew as
    return known.path == seen.path and known.ino != seen.ino


def _lacking(copy: FileFacts, log: FileFacts, key: str, position: int, rules: Rules, found: Survey) -> None:
    """Report the part of a log that had been seen before it began anew, and is not in its copy: it was written after
    the copy."""
    end = max(copy.size, position)
    if log.size > end:
        if rules.stop:
            raise EndTakenBack(place=copy.path, seen=log.size, end=end)
        found.taken_back[key] = (end, log.size)


def _copies(stream: BinaryIO, seen: Seen, key: str, found: Survey, *, compressed: bool) -> bool:
    """Whether a file is so far a copy of a log whose file is here, and may be about to be truncated or removed."""
    path = found.here.get(key)
    if path is None or found.facts(key).whole or path == seen.path or (compressed and f"{path}.gz" != seen.path):
        return False
    try:
        log = opened(path)
    except FileNotFoundError:
        return False
    with log:
        alike = begins_alike(stream, 0 if compressed else seen.size, log)
    stream.seek(0)
    if alike:
        found.notes.append(f"{printable(seen.path)} is so far a copy of {printable(path)}, and is not read twice")
    return alike
