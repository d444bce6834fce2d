"""Doors: where a worker hands in the letters of its peers, dataflow by dataflow.

A peer may have built a dataflow before this worker has, so letters for an address not yet known are kept; and it may
go on with one that this worker has finished or dropped, so letters for a dataflow that was here are forgotten.

Invariant: every letter for a dataflow that this worker builds is handed in exactly once, each lane in its order.

>>> from tidegauge.dataflow.workers.mailbox import PromptMail
>>> mail = PromptMail(2)
>>> doors, address = Doors(1, mail), ("shop", 0, (3,))
>>> mail.post(0, 1, address, "early"); doors.deliver()
>>> doors.open({address: print})
early
>>> mail.post(0, 1, address, "in time"); doors.deliver()
in time
>>> doors.close({address: print})
>>> mail.post(0, 1, address, "late"); doors.deliver()
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from tidegauge.dataflow.workers.mailbox import Address, Mail

__all__ = ["Doors"]


class Doors:
    """The doors of one worker."""

    def __init__(self, index: int, mail: Mail) -> None:
        self._index: Final = index
        self._mail: Final = mail
        self._open: Final[dict[Address, Callable[[Any], None]]] = {}
        self._been: Final[set[tuple[str, int]]] = set()
        self._early: Final[dict[tuple[str, int], list[tuple[Address, Any]]]] = {}

    def post(self, to: int, address: Address, letter: Any) -> None:
        """Send a letter to the same address at a peer."""
        self._mail.post(self._index, to, address, letter)

    def tell(self, address: Address, letter: Any) -> None:
        """Send a letter to the same address at every peer."""
        for peer in range(self._mail.peers):
            if peer != self._index:
                self.post(peer, address, letter)

    def open(self, doors: Mapping[Address, Callable[[Any], None]]) -> None:
        """Open all doors of one dataflow, and hand in what came early."""
        self._open.update(doors)
        for dataflow in {address[:2] for address in doors}:
            self._been.add(dataflow)
            for address, letter in self._early.pop(dataflow, ()):
                self._open[address](letter)

    def close(self, doors: Iterable[Address]) -> None:
        """Close all doors of one dataflow; what comes for it from now on is forgotten."""
        for address in doors:
            del self._open[address]

    @property
    def waiting(self) -> bool:
        """Whether something has been sent here that was not yet handed in."""
        return self._mail.waiting(self._index)

    def deliver(self) -> None:
        """Hand in the received letters."""
        for address, letter in self._mail.take(self._index):
            door = self._open.get(address)
            if door is not None:
                door(letter)
            elif address[:2] not in self._been:
                self._early.setdefault(address[:2], []).append((address, letter))
