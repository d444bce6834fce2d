"""A flow whose history is compacted while readers hold epochs, and little else goes wrong: `search` looks here."""

from __future__ import annotations

from typing import Final

from tests.simulation import reference

FAULTS: Final = ("history", "slow")

make_flow = reference.make_flow
