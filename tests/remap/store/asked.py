"""What stores are asked, in their own words: the statements, and from which epoch on bindings are read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, event

__all__ = ["first_epochs", "statements"]


@contextmanager
def statements() -> Iterator[list[tuple[str, tuple[Any, ...]]]]:
    """Collect the statements of all stores of this process, each with its values."""
    said: list[tuple[str, tuple[Any, ...]]] = []

    def note(_connection: Any, _cursor: Any, statement: str, values: Any, *_: Any) -> None:
        said.append((statement, tuple(values.values() if isinstance(values, dict) else values)))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield said
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def first_epochs(said: list[tuple[str, tuple[Any, ...]]]) -> list[int | None]:
    """From which epoch on bindings of a source were read, each time; None for all of them."""
    read = [(text, values) for text, values in said if "FROM changes" in text]
    return [values[1] if "epoch >=" in text else None for text, values in read]
