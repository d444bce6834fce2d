"""Waiting for a condition that nothing announces: it is looked at again and again."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["eventually"]


def eventually(
    condition: Callable[[], object], *, within: float = 30.0, otherwise: Callable[[], str] | None = None
) -> None:
    """Come back when the condition holds; fail after so many seconds, and say `otherwise`.

    A condition raises when it can hold no more.
    """
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, otherwise() if otherwise is not None else "it did not come about"
        time.sleep(0.01)
