"""Upstreams in memory, each with its source: a simulation writes the upstream, and a flow reads the source.

Invariant: nothing here reads a clock, draws a random number, starts a thread or sleeps.
"""

from tidegauge.testing.simulation.upstream.attending import ATTENDED_POINTS, BYTEWAX_POINTS, is_polled
from tidegauge.testing.simulation.upstream.counterpart import Counterpart, MetSource, Simulable, counterpart
from tidegauge.testing.simulation.upstream.feed import FeedLog
from tidegauge.testing.simulation.upstream.feed_source import PUSH_POINTS, SimulatedFeed
from tidegauge.testing.simulation.upstream.folder import Folder
from tidegauge.testing.simulation.upstream.log import PartitionedLog
from tidegauge.testing.simulation.upstream.polled import PolledService
from tidegauge.testing.simulation.upstream.simulated import POINTS, SimulatedLog

__all__ = [
    "ATTENDED_POINTS",
    "BYTEWAX_POINTS",
    "POINTS",
    "PUSH_POINTS",
    "Counterpart",
    "FeedLog",
    "Folder",
    "MetSource",
    "PartitionedLog",
    "PolledService",
    "Simulable",
    "SimulatedFeed",
    "SimulatedLog",
    "counterpart",
    "is_polled",
]
