"""The witness of a chaos: it holds what real processes leave behind against the laws of the simulated worlds.

Invariant: it needs nothing of the code that it judges, but for the description of the flow and its steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random

from tests.chaos.evidence import (
    Away,
    DeltaFolder,
    FilesSeen,
    KeyedFolder,
    ParquetFolder,
    StoreSeen,
    TablesSeen,
    TopicSeen,
)
from tests.chaos.flow import KEYS, Place
from tests.chaos.writers import TopicWriter
from tests.waiting import eventually

from tidegauge.testing import Endpoint
from tidegauge.testing.simulation.checks import Checks
from tidegauge.testing.simulation.evidence import UpstreamEvidence
from tidegauge.testing.simulation.ledger import BindingLedger, Broken

__all__ = ["Witness"]


class Witness:
    """Looks at one place. looks: how often all laws held. away: which server did not answer the last time."""

    def __init__(self, place: Place, broker: Endpoint, random: Random, say: Callable[[str], None]) -> None:
        spec = place.flow().spec
        orders, visits = (spec.sources[name].schema for name in ("orders", "visits"))
        assert orders is not None
        assert visits is not None
        self.looks = 0
        self.away = ""
        self._random, self._say = random, say
        self._store = StoreSeen(place.store)
        self._last = KeyedFolder(place.table("last"), "chaos:last")
        self._orders = DeltaFolder(place.table("orders"), "chaos:orders")
        self._tables = TablesSeen(
            {
                "orders": self._orders,
                "large": ParquetFolder(place.table("large")),
                "visits": ParquetFolder(place.table("visits")),
            }
        )
        self._topic = TopicSeen(broker, place.topic, "tidegauge.chaos.orders", orders)
        upstreams: dict[str, UpstreamEvidence] = {"orders": self._topic, "visits": FilesSeen(place.folder, visits)}
        self._ledger = BindingLedger(self._store, upstreams)
        others = {name: plan for name, plan in spec.outputs.items() if name != "last"}
        self._checks = Checks(replace(spec, outputs=others), self._ledger, self._tables, upstreams)

    def close(self) -> None:
        """Take leave of the broker."""
        self._topic.close()

    @property
    def epochs(self) -> int:
        """How many epochs are bound."""
        return self._ledger.upper

    @property
    def rows(self) -> int:
        """How many rows all tables have."""
        return sum(self._tables.rows(name).num_rows for name in self._tables.tables)

    @property
    def packed(self) -> int:
        """How often small files were packed."""
        return self._orders.packed()

    def look(self) -> None:
        """Look at what has to hold at any time. Raises `Broken`."""
        self.looks += self._asked(self._laws)

    def caught_up(self) -> bool:
        """Whether all records are bound, in every table, published and acknowledged. Raises `Broken`."""
        return self._asked(lambda: self._laws() and self._checks.caught_up())

    def state(self) -> str:
        """Return how far everything is, for people."""
        return self.away or self._checks.state()

    def at_the_end(self) -> None:
        """Look at everything once more, once everybody answers: nobody writes, nobody drives. Raises `Broken`."""
        eventually(lambda: self._asked(self._whole), within=60, otherwise=self.state)

    def cleared(self) -> None:
        """Look for files that are left of drivers that were killed. Raises `Broken`."""
        if litter := self._tables.litter():
            raise Broken("nothing that was staged is left", ", ".join(sorted(litter)[:5]))

    def compare(self, writer: TopicWriter) -> None:
        """Hold the topic, which the tables are held against, against its writer. Raises `Broken`."""
        there = Counter(self._topic.records().values())
        if lost := writer.sure - there.keys():
            raise Broken("the broker has what it acknowledged", str(sorted(lost)[:20]))
        if undone := writer.undone & there.keys():
            raise Broken("an aborted record is not read", str(sorted(undone)[:20]))
        if twice := [n for n, count in there.items() if count > 1]:
            raise Broken("a record is in the topic once", str(twice[:20]))

    def _laws(self) -> bool:
        for place in ("after publish", "orders: acknowledged"):
            self._checks.at(place)
        if self._checks.broken is not None:
            raise self._checks.broken
        self._checks.read(self._random)
        self._by_key()
        return True

    def _whole(self) -> bool:
        self._checks.at_the_end(orderly=True)
        upper = self._by_key()
        if lacking := [epoch for epoch in self._tables.rows("orders")["_epoch"].to_pylist() if epoch >= upper]:
            raise Broken("a table by key has every record", f"it has those before {upper}, and not {lacking[:5]}")
        return True

    def _by_key(self) -> int:
        """Hold the table by key against the table of all orders, and return the first epoch that it lacks.

        What a driver has committed to one table need not be in the other yet: then there is nothing to compare with.
        """
        upper, found = self._last.state()
        if self._tables.upper("orders") >= upper > 0:
            rows = self._tables.rows("orders", as_of=upper - 1).select(["n", "_epoch"]).to_pylist()
            last = {row["n"] % KEYS: (row["n"], row["_epoch"]) for row in sorted(rows, key=_order)}
            there = {k: row for k, row in last.items() if row[0] // KEYS % 5 != 4}
            if found != there:
                wrong = sorted(k for k in found.keys() | there.keys() if found.get(k) != there.get(k))[:5]
                said = ", ".join(f"{k}: {found.get(k)} and not {there.get(k)}" for k in wrong)
                raise Broken("a table by key is the dictionary of its changes", f"before epoch {upper}: {said}")
        return upper

    def _asked(self, question: Callable[[], bool]) -> bool:
        """Return an answer as of one instant; False where a server does not answer that has to be asked."""
        away = ""
        try:
            self._topic.ask_told()
            with self._store.at_one_instant():
                self._topic.ask_ends()
                return question()
        except Away as error:
            away = str(error)
            return False
        finally:
            if away != self.away:
                self._say(f"cannot look: {away}" if away else "can look again")
            self.away = away


def _order(row: Mapping[str, int]) -> tuple[int, int]:
    """Of two epochs the later one counts, within an epoch the greater number."""
    return row["_epoch"], row["n"]
