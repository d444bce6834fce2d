"""Outputs of a simulation: tables in memory behind the seam of a sink, and what tells what they hold."""

from tidegauge.testing.simulation.tables.counterpart import counterpart_of
from tidegauge.testing.simulation.tables.lake import Lake, LakeCommit, LakeTable, applied
from tidegauge.testing.simulation.tables.sink import DECIDED, POINTS, SimulatedSink, SimulatedTable

__all__ = [
    "DECIDED",
    "POINTS",
    "Lake",
    "LakeCommit",
    "LakeTable",
    "SimulatedSink",
    "SimulatedTable",
    "applied",
    "counterpart_of",
]
