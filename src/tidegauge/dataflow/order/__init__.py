"""An order says which times may follow which, and how far a path through the graph carries a time.

Times are plain Python values; the scope owns the `Order`. An order needs four members:

- `minimum`, a time at or below every other;
- `less_equal(a, b)`, a partial order: reflexive, antisymmetric, transitive, and consistent with `==`;
- `sort_key(time)`, a value that sorts so that `a < b` in the order implies `sort_key(a) < sort_key(b)`: a *linear
  extension*. It decides the sequence of a search, never completeness;
- `total`, which promises that every two times compare and that Python's own `<` is this order (it only buys speed).

Take care: Python sorts the tuples of `Product` lexicographically. That is their sort order, not their order.

>>> Product(INT, INT).less_equal((1, 2), (2, 1)), (1, 2) < (2, 1)
(False, True)

There are `UNIT` (one time, for data that is complete all at once), `INT` and `Bounded`, the pairs `Product` and
`Lex`, and `PARTITIONED`. Your own order is one small class. In this one, words are beyond all that they begin with:

>>> class Prefixes:
...     minimum, total = "", False
...     def less_equal(self, a, b): return b.startswith(a)
...     def sort_key(self, word): return word
>>> from tidegauge.dataflow import Antichain, Worker
>>> Antichain(["tidal", "tide", "tides"], Prefixes())
Antichain(['tidal', 'tide'])
>>> worker = Worker(monotonic=lambda: 0.0)
>>> with worker.dataflow("words", order=Prefixes()) as scope:
...     handle, stream = scope.input("words")
...     probe = stream.probe()
>>> handle.advance_to("tide")
>>> while probe.less_than("tide"): _ = worker.step()
>>> probe.less_equal("tides"), probe.less_equal("tidal")
(True, False)

An order whose times can move along a path is `Advancing`. A *summary* is the least advance along a path:
`results_in(time, summary)` applies it, `followed_by(a, b)` joins two, both monotone, and applying the joined summary
equals applying one after the other. Either may be None: this path can never be crossed. The summary None is the
identity of every order, and `normal` turns what a user writes into None whenever it is the identity. Any other
carries each time strictly further, or the order says with `idle` which do not.

>>> loop = Product(INT, INT)
>>> loop.results_in((3, 4), (0, 1)), loop.normal((0, 1)), loop.normal((0, 0))
((3, 5), (None, 1), None)
"""

from tidegauge.dataflow.order.numbers import INT, UNIT, Bounded, Integers, Unit
from tidegauge.dataflow.order.pairs import Lex, Product, Refinement, product, same
from tidegauge.dataflow.order.partitioned import (
    ALL,
    FIRST,
    LAST,
    PARTITIONED,
    Cut,
    Interval,
    Partitioned,
    PartitionedTime,
    after,
    before,
    only,
)
from tidegauge.dataflow.order.protocol import (
    NEVER,
    Advancing,
    Lattice,
    Never,
    Order,
    Restricting,
    Steady,
    Summary,
    Time,
    advance,
    compose,
    has,
    idle,
    join,
    less_than,
    maximum,
    meet,
    normal,
    require_time,
    steady,
    summary_less_equal,
)
from tidegauge.dataflow.order.search import Searchable, Spread, finder, minimal

__all__ = [
    "ALL",
    "FIRST",
    "INT",
    "LAST",
    "NEVER",
    "PARTITIONED",
    "UNIT",
    "Advancing",
    "Bounded",
    "Cut",
    "Integers",
    "Interval",
    "Lattice",
    "Lex",
    "Never",
    "Order",
    "Partitioned",
    "PartitionedTime",
    "Product",
    "Refinement",
    "Restricting",
    "Searchable",
    "Spread",
    "Steady",
    "Summary",
    "Time",
    "Unit",
    "advance",
    "after",
    "before",
    "compose",
    "finder",
    "has",
    "idle",
    "join",
    "less_than",
    "maximum",
    "meet",
    "minimal",
    "normal",
    "only",
    "product",
    "require_time",
    "same",
    "steady",
    "summary_less_equal",
]
