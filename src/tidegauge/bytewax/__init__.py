"""Tidegauge and bytewax: an output of a flow as a source of a dataflow, and a sink of bytewax as an output, and a
sink of a dataflow that a flow reads.

    from tidegauge.bytewax import LogSink, OutputSource, as_output

It needs the extra `tidegauge[bytewax]`.
"""

from tidegauge.bytewax.following import OutputSource
from tidegauge.bytewax.logsink import LogSink
from tidegauge.bytewax.writing import as_output

__all__ = ["LogSink", "OutputSource", "as_output"]
