"""Mailboxes: how the workers of one process send each other batches and progress.

A letter goes from one worker to another, to an *address*: a scope or an operator, by the name of the dataflow, how
many dataflows of that name came before, and the numbers of the nodes from the dataflow down. Workers that build the
same dataflow give the same things the same addresses. Each worker hands its letters in at its `Doors`.

Invariant: letters from one worker to one address arrive once, whole, and in the order of sending. Nothing else is
promised: letters of different senders, or to different addresses, may overtake one another, and batches may come
before or after the progress that speaks of them. Progress tracking needs no more than this.

>>> mail = PromptMail(2)
>>> mail.post(0, 1, ("shop", 0, (3,)), "a batch")
>>> mail.waiting(1), mail.take(1), mail.take(1)
(True, [(('shop', 0, (3,)), 'a batch')], [])
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any, Final, Protocol, TypeAlias

__all__ = ["Address", "Doors", "Mail", "PromptMail", "ShuffledMail"]

Address: TypeAlias = tuple[str, int, tuple[int, ...]]
"""The name of a dataflow, how many of that name came before, and the numbers of the nodes from it down."""


class Mail(Protocol):
    """What connects `peers` workers, numbered from 0."""

    @property
    def peers(self) -> int:
        """How many workers there are."""
        ...

    def attach(self, worker: int, wake: Callable[[], None]) -> None:
        """Call `wake`, from the sender's thread, whenever something was sent to `worker`."""
        ...

    def post(self, sender: int, to: int, address: Address, letter: Any) -> None:
        """Send a letter; it is not to be changed any more. From the sender's thread."""
        ...

    def take(self, worker: int) -> list[tuple[Address, Any]]:
        """Take the letters for `worker`. From the worker's thread."""
        ...

    def waiting(self, worker: int) -> bool:
        """Whether something was sent to `worker` that it has not taken."""
        ...


class PromptMail:
    """Letters arrive at once, in the order of sending. For workers in threads of their own."""

    def __init__(self, peers: int) -> None:
        self.peers: Final = peers
        self._boxes: Final[list[deque[tuple[Address, Any]]]] = [deque() for _ in range(peers)]
        self._wake: Final[list[Callable[[], None]]] = [_nobody] * peers

    def attach(self, worker: int, wake: Callable[[], None]) -> None:
        """Call `wake` whenever something was sent to `worker`."""
        self._wake[worker] = wake

    def post(self, sender: int, to: int, address: Address, letter: Any) -> None:  # noqa: ARG002
        """Put the letter into the box, then wake its owner: in this sequence no wake-up is lost."""
        self._boxes[to].append((address, letter))
        self._wake[to]()

    def take(self, worker: int) -> list[tuple[Address, Any]]:
        """Empty the box."""
        box = self._boxes[worker]
        return [box.popleft() for _ in range(len(box))]

    def waiting(self, worker: int) -> bool:
        """Whether the box holds something."""
        return bool(self._boxes[worker])


class ShuffledMail:
    """Letters arrive when chance has it, in any order that the invariant allows. For workers in one thread.

    Of each lane (sender, address) a random number of letters, from the front, has come by the next `take`.

    >>> mail = ShuffledMail(2, Random(3))
    >>> for letter in "abcdef": mail.post(0, 1, ("shop", 0, ()), letter)
    >>> takes = []
    >>> while mail.waiting(1): takes.append("".join(letter for _, letter in mail.take(1)))
    >>> takes, "".join(takes)
    (['abcd', 'e', '', 'f'], 'abcdef')
    """

    def __init__(self, peers: int, random: Random) -> None:
        self.peers: Final = peers
        self._random: Final = random
        self._lanes: Final[list[dict[tuple[int, Address], deque[Any]]]] = [{} for _ in range(peers)]
        self._wake: Final[list[Callable[[], None]]] = [_nobody] * peers

    def attach(self, worker: int, wake: Callable[[], None]) -> None:
        """Call `wake` whenever something was sent to `worker`."""
        self._wake[worker] = wake

    def post(self, sender: int, to: int, address: Address, letter: Any) -> None:
        """Put the letter at the end of its lane."""
        self._lanes[to].setdefault((sender, address), deque()).append(letter)
        self._wake[to]()

    def take(self, worker: int) -> list[tuple[Address, Any]]:
        """Take a random part of each lane, the lanes in random order."""
        lanes = self._lanes[worker]
        taken: list[tuple[Address, Any]] = []
        for lane in self._random.sample(sorted(lanes), len(lanes)):
            letters = lanes[lane]
            taken.extend((lane[1], letters.popleft()) for _ in range(self._random.randint(0, len(letters))))
            if not letters:
                del lanes[lane]
        return taken

    def waiting(self, worker: int) -> bool:
        """Whether any lane holds something."""
        return bool(self._lanes[worker])


def _nobody() -> None:
    """Nobody asked to be woken."""


class Doors:
    """Where a worker hands in the letters of its peers, dataflow by dataflow.

    A peer may have built a dataflow before this worker has, so letters for an address not yet known are kept; and it
    may go on with one that this worker has finished or dropped, so letters for a dataflow that was here are
    forgotten. Every letter for a dataflow that this worker builds is handed in exactly once, each lane in its order.

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
