"""Upstreams in memory, each with its source: a simulation writes the upstream, and a flow reads the source.

Invariant: nothing here reads a clock, draws a random number, starts a thread or sleeps.
"""

from tidegauge.testing.simulation.upstream.counterpart import Counterpart, MetSource, Simulable, counterpart
from tidegauge.testing.simulation.upstream.folder import Folder
from tidegauge.testing.simulation.upstream.log import PartitionedLog
from tidegauge.testing.simulation.upstream.simulated import POINTS, SimulatedLog

__all__ = [
    "POINTS",
    "Counterpart",
    "Folder",
    "MetSource",
    "PartitionedLog",
    "Simulable",
    "SimulatedLog",
    "counterpart",
]
