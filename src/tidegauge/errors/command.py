"""TG-06xx: the command line and reading back."""

from __future__ import annotations

__all__: list[str] = []
