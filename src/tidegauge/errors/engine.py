"""TG-05xx: engines and running a flow."""

from __future__ import annotations

__all__: list[str] = []
