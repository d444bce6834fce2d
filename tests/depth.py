"""How far a property is tried: `make test` makes a quarter of the examples, and `make long` all of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final, TypeVar

import pytest
from hypothesis import settings

__all__ = ["DEEP", "deep", "examples"]

Test = TypeVar("Test", bound=Callable[..., Any])

DEEP: Final = os.environ.get("TIDEGAUGE_DEEP") == "1"


def examples(count: int) -> int:
    """How many of so many examples are made here."""
    return count if DEEP else max(1, count // 4)


def deep(count: int, **others: Any) -> Callable[[Test], Test]:
    """Settings of a property that `make long` tries with `count` examples."""

    def marked(test: Test) -> Test:
        known: Test = pytest.mark.deep(settings(max_examples=examples(count), deadline=None, **others)(test))
        return known

    return marked
