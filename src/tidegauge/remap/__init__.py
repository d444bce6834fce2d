"""The remap table: durable bindings from epochs to frontiers, their store, and the minting of new ones.

A `Frontier` says where a source stands, a `Probe` what upstream says of itself; `mint` decides what a tick binds, the
`Store` makes it durable, and the `RemapTable` answers what belongs to which epoch.
"""

from tidegauge.remap.binding import Bound, Detail, Probe, Proposal, Slice
from tidegauge.remap.frontier import ORIGIN, Frontier
from tidegauge.remap.mint import admit, mint
from tidegauge.remap.table import RemapTable

__all__ = [
    "ORIGIN",
    "Bound",
    "Detail",
    "Frontier",
    "Probe",
    "Proposal",
    "RemapTable",
    "Slice",
    "admit",
    "mint",
]
