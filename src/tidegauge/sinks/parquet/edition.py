"""The editions of a Parquet table: all rows leave the sight of those who list the folder, then others come into it.

    from_epoch=000000000006/_manifest.json            the swap: it has the name of the next commit of the old rows
    from_epoch=000000000006/_rows/_manifest.json      the first commit of the new rows, of [0, upper)
    from_epoch=000000000006/_rows/part-....parquet    its files, out of sight
    from_epoch=0000000000000/...                      the folder `_rows`, renamed once no old row is in sight

The swap is one commit of the chain, so it is made or not, and our readers go by it from that instant on. What
follows is for those who list the folder: the old files move to `_removed`, the last epochs first, and then one
rename brings the new rows into sight. The folders of the old commits keep their names and their manifests: a driver
that slept finds the name of its commit taken for ever. The new commits have a zero more in theirs (their *base*)
than any of before.

Invariant: no new row comes into sight before every old one is out of it, durably. So who lists the folder may miss
rows for a moment, and sees none twice. Each step may be done again, by anybody, at any time.

>>> newest(["from_epoch=000000000000", "from_epoch=000000000006"])
0
>>> newest(["from_epoch=000000000000", "from_epoch=0000000000000", "from_epoch=000000000006"])
1
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from tidegauge.sinks.location import make_folder, synchronise
from tidegauge.sinks.parquet.manifest import MANIFEST, REMOVED, ROWS, folder_name, is_commit, slot_of

__all__ = ["below", "finish", "first_folders", "hidden", "newest", "visible"]


def newest(names: Iterable[str]) -> int:
    """Return the base of the newest edition that has come into sight, of the names of commits' folders."""
    return max((place for lower, place in map(slot_of, names) if lower == 0), default=0)


def first_folders(table: str, swap: str | None, base: int) -> list[Path]:
    """Return the places to look for the first commit of an edition, in their order. swap: the folder of its swap."""
    there = Path(table, folder_name(0, base))
    return [there] if swap is None else [Path(table, swap, ROWS), there]


def hidden(table: str, names: Iterable[str]) -> str | None:
    """Return the folder of the swap whose rows are not in sight yet, None where there is none."""
    return next((name for name in names if Path(table, name, ROWS).is_dir()), None)


def visible(folder: Path) -> list[str]:
    """Return the names in a folder that readers who list it look at; none where it is gone."""
    try:
        return [name for name in os.listdir(folder) if not name.startswith(("_", "."))]
    except FileNotFoundError:
        return []


def below(folder: Path) -> list[str]:
    """Return the files in a folder that readers who list it see, as paths relative to it; none where it is gone.

    Folders of partitions are looked into, and no others.
    """
    found: list[str] = []
    for name in visible(folder):
        inner = folder / name
        parted = "=" in name and inner.is_dir() and not inner.is_symlink()
        found += [f"{name}/{path}" for path in below(inner)] if parted else [name]
    return found


def finish(table: str, swap: str, base: int) -> None:
    """Take the rows before a swap out of sight, and bring those of the swap into it, if this is still to be done."""
    rows, there = first_folders(table, swap, base)
    if (there / MANIFEST).exists() or not rows.is_dir():
        return
    away = Path(table, REMOVED)
    slots = [slot_of(name) for name in visible(Path(table)) if is_commit(name)]
    folders = [Path(table, folder_name(*slot)) for slot in sorted(slots, reverse=True) if slot[1] < base]
    old = [folder / name for folder in folders for name in below(folder)]
    make_folder(away)
    for path in old:  # without a pause: for so long rows are missing from the listing
        with suppress(FileNotFoundError):  # another driver has moved it
            path.rename(away / path.name)
    synchronise(away)  # a rename is whole: what is durable there is gone from where it was
    with suppress(FileNotFoundError):
        rows.rename(there)
    synchronise(table)
