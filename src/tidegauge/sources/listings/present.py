"""What there is now under the paths of listed files, asked before they are planned.

On a disk each is looked at. Of a store many that follow each other in the order of their keys are listed: a thousand
in a request. Where a listing brings too many others, the rest is asked for one by one.

Invariant: an answer is that of a disk, or of a store, after the question; None says that there is nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from tidegauge.objects.address import parts
from tidegauge.objects.client import at_once
from tidegauge.objects.listing import Listed, one, pages
from tidegauge.sources.file.watching import absent
from tidegauge.sources.listings.walking import before

__all__ = ["present"]

_FEW: Final = 100
"""How many objects are asked for one by one."""


def present(files: Sequence[Listed]) -> list[Listed | None]:
    """Return what there is under the paths of some files, in their order. Raises `OSError`, and what a store does."""
    if not files or not files[0].etag:
        return [_status(file.path) for file in files]
    there = _listed(files) if len(files) > _FEW else {}
    rest = [file.path for file in files if file.path not in there]
    asked = dict(zip(rest, at_once(one, rest), strict=True))
    return [there.get(file.path) or asked[file.path] for file in files]


def _listed(files: Sequence[Listed]) -> dict[str, Listed]:
    """Return those of many objects that a listing between the first and the last of them has in some pages."""
    wanted = {file.path for file in files}
    first, last = min(wanted), max(wanted)
    bucket, begin = parts(first)
    folder = os.path.commonpath([key.rpartition("/")[0] for key in (begin, parts(last)[1])])
    found: dict[str, Listed] = {}
    for number, page in enumerate(pages(bucket, folder, deep=True, after=before(begin))):
        found |= {each.path: each for each in page if each.path in wanted}
        if not page or page[-1].path >= last or number * _FEW > len(files):
            break
    return found


def _status(path: str) -> Listed | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - a path of text
    except OSError as error:
        if absent(error):
            return None
        raise
    return Listed(path, status.st_size, status.st_mtime_ns, "")
