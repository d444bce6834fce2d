"""Which kind a format is, and so how its files enter.

Invariant: a file of a whole format, or one that is compressed, is bound as a whole, once; any other by complete
records.
"""

from __future__ import annotations

from typing import cast

from tidegauge.sources.formats.protocol import Format, LineFormat, WholeFormat

__all__ = ["as_line", "as_whole", "is_whole"]

_COMMON = ("describe",)
_LINE = (*_COMMON, "infer", "header", "last_boundary", "cuts", "decode")
_WHOLE = (*_COMMON, "infer_whole", "complete", "groups", "decode_groups")


def _has(value: object, names: tuple[str, ...]) -> bool:
    return not isinstance(value, type) and all(callable(getattr(value, name, None)) for name in names)


def as_line(value: Format) -> LineFormat | None:
    """Return the format as a line format, or None when it is none."""
    return cast("LineFormat", value) if _has(value, _LINE) else None


def as_whole(value: Format) -> WholeFormat | None:
    """Return the format as a whole format, or None when it is none."""
    return cast("WholeFormat", value) if _has(value, _WHOLE) else None


def is_whole(value: Format, path: str) -> bool:
    """Whether the file of this name is bound as a whole."""
    return as_line(value) is None or path.endswith(".gz")
