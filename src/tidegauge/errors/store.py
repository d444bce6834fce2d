"""TG-02xx: the store, the remap table and the lease."""

from __future__ import annotations

__all__: list[str] = []
