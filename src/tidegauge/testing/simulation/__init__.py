"""Whole flows in one thread, on virtual time, from a seed: sources, store, tables, drivers, clocks and their faults.

Invariant: what a seed does depends on the seed and the flow alone.
"""

from tidegauge.errors.simulation import GreenletMissing

try:
    import greenlet  # noqa: F401 - looked for here, so that its absence is explained
except ImportError as error:
    raise GreenletMissing(detail=str(error)) from error

from tidegauge.testing.simulation.plan import KINDS, Act, Fault, Plan
from tidegauge.testing.simulation.simulate import Shrinking, Simulated, carry_out, replay, simulate

__all__ = ["KINDS", "Act", "Fault", "Plan", "Shrinking", "Simulated", "carry_out", "replay", "simulate"]
