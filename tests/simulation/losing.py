"""A flow whose upstreams lose records before they are read, and little else goes wrong: `search` looks here."""

from __future__ import annotations

from typing import Final

from tests.simulation import reference

FAULTS: Final = ("retention", "crash", "error", "pause")

make_flow = reference.make_flow
