"""TG-04xx: sinks and tables."""

from __future__ import annotations

__all__: list[str] = []
