"""TG-07xx: the timely core."""

from __future__ import annotations

__all__: list[str] = []
