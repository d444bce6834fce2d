"""Litter: what drivers that died have staged into a Parquet table's folder and never committed.

    _staged/<job>/part-....parquet    staged by a task
    _staged/commit-<job>/...          gathered for a commit, of which the last step was not reached
    _staged/removed-<either>/...      on its way out

A folder goes only if it is proved to be ours and abandoned.

*Ours.* A job's name begins with the mark of its flow (`job_mark`): 60 random bits that were drawn when the flow came
into its store. Another flow, even one that was pointed at this folder by mistake, has another mark. Whatever else
lies here is left alone.

*Abandoned.* No job's name is used twice. The caller has the flow's lease, and has staged nothing yet. First the
folders are listed, then `confirm` checks that the lease was ours all the time. So every folder in the list is of a
driver that had the lease before and has it no more. No clock is asked, and files staged after the check are not in
the list.

*In use all the same?* A driver that lost its lease may be alive: asleep, or behind a slow network. It cannot publish,
but it may yet come to commit. A commit is one rename of its folder; so is the first step of a removal. Of two renames
of one folder the file system lets one win. If it is the commit, there is nothing left to remove. If it is the
removal, the commit fails in whole. Nothing is ever removed from under a manifest. A task that still writes, writes
into a folder that nobody will commit. Readers never look into folders whose names begin with "_".
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["sweep"]

_AWAY: Final = "removed-"
_NAME: Final = re.compile(rf"(?:{_AWAY})?(?:commit-)?([0-9a-f]{{16}})[0-9a-f]{{16}}")


def sweep(staged: Path, mark: str, confirm: Callable[[], None]) -> None:
    """Remove the folders in `staged` of jobs of the flow `mark`; see the argument above.

    `confirm` raises when the lease is lost, and nothing is removed. What the file system does not let go stays: it is
    invisible and harmless.
    """
    found = _listed(staged, mark)
    if not found:
        return
    confirm()
    for folder in found:
        with suppress(OSError):
            away = folder if folder.name.startswith(_AWAY) else folder.with_name(f"{_AWAY}{folder.name}")
            folder.rename(away)
            shutil.rmtree(away)


def _listed(staged: Path, mark: str) -> list[Path]:
    """Return the folders of the flow's jobs, those on their way out first, which makes way for the others' names."""
    try:
        with os.scandir(staged) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    ours = [name for name in names if (found := _NAME.fullmatch(name)) is not None and found[1] == mark]
    return [staged / name for name in sorted(ours, key=lambda name: (not name.startswith(_AWAY), name))]
