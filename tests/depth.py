"""How far a property is tried: `make test` makes a quarter of the examples, and `make long` all of them.

A property says how many these are by `@deep(count)`; one that does not say it has Hypothesis' hundred.
"""

from __future__ import annotations

import os
from typing import Any, Final

from hypothesis import settings

__all__ = ["DEEP", "deep", "examples"]

DEEP: Final = os.environ.get("TIDEGAUGE_DEEP") == "1"


def examples(count: int) -> int:
    """How many of so many examples are made here."""
    return count if DEEP else max(1, count // 4)


def deep(count: int, **others: Any) -> settings:
    """Settings of a property that `make long` tries with `count` examples."""
    return settings(max_examples=examples(count), deadline=None, **others)
