"""Tidegauge and bytewax: an output of a flow as a source of a dataflow, and a sink of bytewax as an output.

    from tidegauge.bytewax import OutputSource, as_output

It needs the extra `tidegauge[bytewax]`.
"""

from tidegauge.bytewax.following import OutputSource
from tidegauge.bytewax.writing import as_output

__all__ = ["OutputSource", "as_output"]
