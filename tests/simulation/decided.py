"""The flow of `lives` where nothing goes wrong but what people decide about its outputs: `search` looks here."""

from __future__ import annotations

from typing import Final

from tests.simulation import lives

FAULTS: Final = ("decisions", "add", "anew", "remake")

make_flow = lives.make_flow
