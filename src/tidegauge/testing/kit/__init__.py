"""The kit for connectors: every law of a source or a sink, tried on yours, and a report in words.

`check_source` needs a `SourceBench`: the source, an upstream of its own, and a hand that adds records there.

Invariant: a connector that passes is taken by a flow as those of Tidegauge are, which pass the same laws.
"""

from tidegauge.testing.kit.report import ConnectorReport, LawFinding
from tidegauge.testing.kit.source import check_source
from tidegauge.testing.kit.source_bench import SourceBench

__all__ = ["ConnectorReport", "LawFinding", "SourceBench", "check_source"]
