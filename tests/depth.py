"""How far a commit is tried: what is slow comes in turns, and properties have fewer examples in `make test`.

A property says how many examples it has by `@deep(count)`; one that does not say it has Hypothesis' hundred. `make
test` makes a quarter of them, `make long` all of those whose turn it is.

Each cell of a test has a turn, 0 to 3, by its place among the cells of that test and by the number of commits:

    of a test in `slow.txt`             0: `make test`, 1: `make long`, 2 and 3: another commit
    of one marked `long`, if it has
    several cells or is in `slow.txt`   1: `make long`, others: another commit
    of a property, at its depth         1: `make long`, others: another commit

So four commits in a row have all, as of the planted bugs, and `TIDEGAUGE_TURNS=all` has all at once. Other tests
marked `long` are in every `make long`.

`slow.txt` names the tests whose cells together took a while: 0.7 seconds of `make test`, 10 of `make long`.
`scripts/slow.py` writes it.
"""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from hypothesis import settings

__all__ = ["DEEP", "SLOW", "TURNS", "commits", "deep", "examples", "turn"]

DEEP: Final = os.environ.get("TIDEGAUGE_DEEP") == "1"
SLOW: Final = frozenset((Path(__file__).parent / "slow.txt").read_text().split())
TURNS: Final = os.environ.get("TIDEGAUGE_TURNS") != "all"
"""Whether they are taken."""


def examples(count: int) -> int:
    """How many of so many examples are made here."""
    return count if DEEP else max(1, count // 4)


def deep(count: int, **others: Any) -> settings:
    """Settings of a property that `make long` tries with `count` examples."""
    return settings(max_examples=examples(count), deadline=None, **others)


def turn(test: str, cell: int, *, commits: int) -> int:
    """Return the turn of a cell of a test, after so many commits.

    >>> [turn("a.py::test", cell, commits=0) for cell in range(4)]
    [1, 2, 3, 0]
    >>> [turn("a.py::test", 0, commits=commits) for commits in range(4)]
    [1, 0, 3, 2]
    """
    return (crc32(test.encode()) + cell - commits) % 4


@cache
def commits() -> int:
    """Return the number of commits, 0 where nobody knows it."""
    command = ["git", "rev-list", "--count", "HEAD"]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return int(done.stdout or 0)
