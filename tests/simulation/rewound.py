"""A flow whose store goes back while drivers run, and nothing else goes wrong: `search` looks here."""

from __future__ import annotations

from typing import Final

from tests.simulation import reference

FAULTS: Final = ("rewind",)

make_flow = reference.make_flow
