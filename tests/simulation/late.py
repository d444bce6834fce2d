"""A flow whose outputs come late, are paused and dropped, and little else goes wrong: `search` looks here."""

from __future__ import annotations

from typing import Final

from tests.simulation import reference

FAULTS: Final = ("outputs", "crash", "error", "lost", "stop", "decisions")

make_flow = reference.make_flow
