"""Forty orders in two files, and the file of a flow that reads them."""

from __future__ import annotations

from pathlib import Path

__all__ = ["forty_orders"]


def forty_orders(root: Path, flow: str) -> Path:
    """Write the orders below `root/in`, and the text of a flow beside it; return the flow's file."""
    (root / "in").mkdir()
    for part in range(2):
        rows = "".join(f"{20 * part + n},user{n}\n" for n in range(20))
        (root / "in" / f"{part}.csv").write_text(f"id,user\n{rows}")
    path = root / "shop.py"
    path.write_text(flow)
    return path
