"""The simulated counterpart of a user's sink: a table of the lake, whatever the sink writes to.

Any sink has one, because its `Table` promises the same as ours: a commit is a compare-and-append, in whole or not at
all, and staged rows are in nobody's sight. A simulation asks whether a flow is right given that promise. Whether a
sink keeps it is another question, which `check_sink` asks of the sink itself.

So a topic is simulated as a table too. Each output has one of its own, also where several share a place: each has an
upper of its own there, and sees nothing of the others. A sink that takes rows with an operation has a counterpart
that takes them; they are kept in the order of their commits, and `applied` makes a table by key of them. What changes
leave out it fills in as the sink does (`filling`). All rows of
any of them can change places, and any can be removed; a plan asks that of no topic. Three things of a topic are left
to the tests with a real broker: how rows become messages, that a new driver shuts out the old one before its next
commit, and that rows cannot be taken out.

>>> from tidegauge.sinks import DeltaSink, KafkaSink
>>> lake = Lake()
>>> upserts = KafkaSink("localhost:9092", topic="orders", key="id", envelope="upsert")
>>> [counterpart_of(sink, lake, "orders").applies for sink in (DeltaSink("/lake/orders"), upserts)]
[False, True]
"""

from __future__ import annotations

from tidegauge.leftout import FillingIn
from tidegauge.sinks.protocol import Applying, Sink
from tidegauge.testing.simulation.tables.lake import Lake
from tidegauge.testing.simulation.tables.sink import Meet, SimulatedSink, unhooked

__all__ = ["counterpart_of"]


def counterpart_of(sink: Sink, lake: Lake, name: str, meet: Meet = unhooked) -> SimulatedSink:
    """Return the sink that writes to the table `name` of a lake what `sink` would write."""
    keeps = sink.keeps if isinstance(sink, FillingIn) else None
    return SimulatedSink(lake, name, meet, applies=isinstance(sink, Applying) and sink.applies, keeps=keeps)
