"""The kit for connectors: every law of a source or a sink, tried on yours, and a report in words.

`check_source` needs a `SourceBench`: the source, an upstream of its own, and a hand that adds records there.
`check_push_source` needs a `PushBench`, with a log in the place of the upstream.
`check_sink` needs a `SinkBench`: the sink, a place of its own, and a hand that reads the rows there.

Invariant: a connector that passes is taken by a flow as those of Tidegauge are, which pass the same laws.
"""

from tidegauge.testing.kit.push_bench import PushBench, PushedRecord
from tidegauge.testing.kit.report import ConnectorReport, LawFinding
from tidegauge.testing.kit.sink import check_sink
from tidegauge.testing.kit.sink_bench import SinkBench
from tidegauge.testing.kit.source import check_push_source, check_source
from tidegauge.testing.kit.source_bench import SourceBench

__all__ = [
    "ConnectorReport",
    "LawFinding",
    "PushBench",
    "PushedRecord",
    "SinkBench",
    "SourceBench",
    "check_push_source",
    "check_sink",
    "check_source",
]
