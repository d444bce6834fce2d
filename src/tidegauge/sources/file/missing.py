"""Files that were seen, and are not there any more.

If a file disappears with bytes that had been seen and not read, that is a loss (law 9), whether they were bound or
not. Unbound ones are bound now, up to the end that was seen: so the loss has an epoch and a range, as every loss has,
and it is found when the range is to be read. There the source fails, or goes on with a row of `gaps`.

Invariant: nothing in a folder that is away is reported lost: a mount may come back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from tidegauge.errors.sources import FileGone, FolderAway
from tidegauge.remap.binding import Detail
from tidegauge.sources.file.found import Rules, Survey
from tidegauge.sources.file.listing import printable

__all__ = ["give_up", "unread"]


def unread(found: Survey) -> dict[str, Detail]:
    """Return the known files that are not here, and were not bound to the end."""
    return {
        key: detail
        for key, detail in found.known.items()
        if key not in found.here and int(detail.get("size", 0)) > found.positions.get(key, 0)
    }


def give_up(missing: Mapping[str, Detail], rules: Rules, found: Survey) -> None:
    """Bind files that are gone to their end. Raises `FolderAway`, and `FileGone` where nothing can be bound yet."""
    if not missing:
        return
    _refuse_away(missing, found)
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


def _refuse_away(missing: Mapping[str, Detail], found: Survey) -> None:
    folders: defaultdict[str, list[Detail]] = defaultdict(list)
    for detail in missing.values():
        folders[str(Path(str(detail["path"])).parent)].append(detail)
    kept = {str(Path(str(found.known[key]["path"])).parent) for key in found.here if key in found.known}
    for folder, details in folders.items():
        what = ""
        try:
            device = Path(folder).stat().st_dev
        except (FileNotFoundError, NotADirectoryError):
            what = "not there"
        else:
            if folder not in kept and all(detail["dev"] != device for detail in details):
                what = "on another file system than they were"
        if what:
            raise FolderAway(folder=folder, what=what, count=len(details), path=details[0]["path"])
