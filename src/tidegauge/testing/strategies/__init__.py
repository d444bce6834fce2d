"""Hypothesis strategies for the values of Tidegauge: what your own properties are tried with.

Invariant: each draws lawful values alone, and all lawful ones that it promises, the awkward ones included; it shrinks
to the smallest value that still shows what you look for. It needs the extra `testing`.

>>> from hypothesis import find, settings
>>> steady = settings(derandomize=True)  # the same examples each time
>>> find(remap_histories(sealed=False), lambda history: history.epoch_of("p1", 0) == 0, settings=steady)
RemapHistory(bindings=((0, Frontier({'p1': 1})),), upper=1, since=0)

Orders: `orders`, and of one order `times`, `summaries`, `antichains`. Frontiers: `frontiers`, `clock_frontiers`,
`advancing_frontiers`. Bindings: `remap_histories`, `shared_histories`. Records: `record_streams`, and how they come,
`cuts`, `arrivals`, `cut_twice`. Rows: `rows`, `schemas`. Lives with faults: `plans`. They compose with Hypothesis'
own, and take those.
"""

from tidegauge.errors.testing import HypothesisMissing

try:
    import hypothesis  # noqa: F401 - looked for here, so that its absence is explained
except ImportError as error:
    raise HypothesisMissing(detail=str(error)) from error

from tidegauge.testing.strategies.frontiers import (
    advancing_frontiers,
    clock_frontiers,
    frontiers,
    partition_names,
    positions,
)
from tidegauge.testing.strategies.histories import RemapHistory, remap_histories, shared_histories
from tidegauge.testing.strategies.lives import plans
from tidegauge.testing.strategies.orders import antichains, intervals, orders, summaries, times
from tidegauge.testing.strategies.rows import column_names, column_types, rows, schemas, values
from tidegauge.testing.strategies.streams import StreamRecord, arrivals, cut_twice, cuts, record_streams

__all__ = [
    "RemapHistory",
    "StreamRecord",
    "advancing_frontiers",
    "antichains",
    "arrivals",
    "clock_frontiers",
    "column_names",
    "column_types",
    "cut_twice",
    "cuts",
    "frontiers",
    "intervals",
    "orders",
    "partition_names",
    "plans",
    "positions",
    "record_streams",
    "remap_histories",
    "rows",
    "schemas",
    "shared_histories",
    "summaries",
    "times",
    "values",
]
