"""TG-03xx: sources and formats."""

from __future__ import annotations

__all__: list[str] = []
