"""Capabilities: permission to send at a time, and so the promise that something may still come at it.

Invariant: a capability is only ever derived from a message or from another capability, at a time at or beyond it;
never from a frontier. Every gain and loss is noted in the account of its output and published with everything else
that the operator's invocation did, as one update. A loss that is noted between two invocations waits for the next
one: wake the operator with an activator.

Nothing releases a capability but `drop`, `downgrade` and the end of the invocation for a message's own (law 5): one
that is forgotten holds its frontier back for ever, and `Worker.explain_stuck` says where.

>>> from tidegauge.dataflow.order import INT
>>> account = Account("shop/remap", 0, INT)
>>> held = Capability.initial(account)
>>> later = held.delayed(5)
>>> held.drop()
>>> later, dict(account.changes)
(Capability(5, 'shop/remap', output 0), {5: 1, 0: -1})
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tidegauge.dataflow.frontier import ChangeBatch
from tidegauge.dataflow.order import Order, Summary, Time, advance, has
from tidegauge.errors.dataflow import (
    AmbiguousTime,
    CapabilityGone,
    ForeignCapability,
    ForeignTime,
    NotBeyond,
    NotConnected,
)

if TYPE_CHECKING:
    from tidegauge.dataflow.capability_set import CapabilitySet

__all__ = ["Account", "Capability", "InputCapability", "InputOrigin", "Invocation", "gain"]


class Account:
    """The capabilities of one output: gains and losses not yet published. The initial one is not among them."""

    __slots__ = ("changes", "has", "order", "path", "port")

    def __init__(self, path: str, port: int, order: Order[Any]) -> None:
        self.path: Final = path
        self.port: Final = port
        self.order: Final = order
        self.has: Final = has(order)
        self.changes: ChangeBatch[Time] = ChangeBatch()

    def require_time(self, time: Time) -> None:
        """Raise ForeignTime unless `time` is one of the order's."""
        if not self.has(time):
            raise ForeignTime(path=self.path, time=repr(time), order=repr(self.order))


class Invocation:
    """Which invocation of an operator is under way, as a number: what belongs to an earlier one is over."""

    __slots__ = ("serial",)

    def __init__(self) -> None:
        self.serial = 0


class InputOrigin:
    """Where a message came in: an input, what it can cause on which output, and the accounts of the outputs."""

    __slots__ = ("accounts", "connection", "invocation", "order", "passing", "path", "port")

    def __init__(
        self,
        path: str,
        port: int,
        order: Order[Any],
        connection: Mapping[int, tuple[Summary, ...]],
        accounts: Sequence[Account],
        invocation: Invocation,
    ) -> None:
        self.path: Final = path
        self.port: Final = port
        self.order: Final = order
        self.connection: Final = connection
        self.accounts: Final = accounts
        self.invocation: Final = invocation
        self.passing: Final = frozenset(accounts[output] for output, least in connection.items() if None in least)


class Capability:
    """Permission to send at `time` and later on one output of one operator."""

    __slots__ = ("_held", "_time", "_wake", "account")

    def __init__(self, account: Account, time: Time, wake: Callable[[], None] | None) -> None:
        """Take note of nothing: only this module and the runtime construct capabilities."""
        self.account = account
        self._time = time
        self._wake = wake
        self._held = True

    @classmethod
    def initial(cls, account: Account, *, wake: Callable[[], None] | None = None) -> Capability:
        """Return the capability at the minimum that every output begins with; the tracker has counted it already."""
        return cls(account, account.order.minimum, wake)

    @property
    def time(self) -> Time:
        """The time from which it permits to send."""
        return self._time

    @property
    def held(self) -> bool:
        """Whether it has not been dropped."""
        return self._held

    def require(self) -> None:
        """Raise CapabilityGone unless it is held."""
        if not self._held:
            raise CapabilityGone(path=self.account.path, held=repr(self._time), ended="drop()")

    def clone(self) -> Capability:
        """Return a second capability at the same time. Raises CapabilityGone."""
        return self.delayed(self._time)

    def delayed(self, time: Time) -> Capability:
        """Return a second capability at `time`. Raises NotBeyond, ForeignTime, CapabilityGone."""
        self.require()
        self.account.require_time(time)
        if not self.account.order.less_equal(self._time, time):
            raise NotBeyond(path=self.account.path, held=repr(self._time), wanted=repr(time), action="delayed")
        return gain(self.account, time, wake=self._wake)

    def try_delayed(self, time: Time) -> Capability | None:
        """Return a second capability at `time`, None when `time` is not at or beyond. Raises like `delayed` else."""
        self.require()
        self.account.require_time(time)
        return self.delayed(time) if self.account.order.less_equal(self._time, time) else None

    def moved(self, time: Time) -> Capability:
        """Return a capability at `time`, which the set notes that this one is dropped from; dropping it wakes."""
        return Capability(self.account, time, self._wake)

    def downgrade(self, time: Time) -> None:
        """Go on to `time`, giving up all times not at or beyond it. Raises NotBeyond, ForeignTime, CapabilityGone."""
        if not self.try_downgrade(time):
            raise NotBeyond(path=self.account.path, held=repr(self._time), wanted=repr(time), action="downgrade")

    def try_downgrade(self, time: Time) -> bool:
        """Go on to `time` if it is at or beyond; return whether it was. Raises like `downgrade` else."""
        self.require()
        self.account.require_time(time)
        if not self.account.order.less_equal(self._time, time):
            return False
        if time != self._time:
            self.account.changes.extend(((time, 1), (self._time, -1)))
            self._time = time
            if self._wake is not None:
                self._wake()
        return True

    def drop(self) -> None:
        """Give it up. A second time does nothing."""
        if self._held:
            self.account.changes.add(self._time, -1)
            self.end()

    def end(self) -> None:
        """End it without a note: a set notes all that it gives up together."""
        self._held = False
        if self._wake is not None:
            self._wake()

    def stamp_for(self, account: Account) -> tuple[Time, ...]:
        """Return the stamp of batches sent with it. Raises ForeignCapability, CapabilityGone."""
        if account is not self.account:
            raise ForeignCapability(
                path=account.path,
                output=account.port,
                held=repr(self._time),
                other=self.account.port,
                owner=self.account.path,
            )
        if not self._held:
            self.require()
        return (self._time,)

    def __repr__(self) -> str:
        gone = "" if self._held else ", dropped"
        return f"Capability({self._time!r}, {self.account.path!r}, output {self.account.port}{gone})"


def gain(account: Account, time: Time, *, wake: Callable[[], None] | None = None) -> Capability:
    """Return a new capability and note it. The caller answers for what it is derived from."""
    account.changes.add(time, 1)
    if wake is not None:
        wake()
    return Capability(account, time, wake)


class InputCapability:
    """What came with a message: permission to send at its stamp, while the invocation lasts that drained it."""

    __slots__ = ("_origin", "_serial", "_stamp")

    def __init__(self, origin: InputOrigin, stamp: tuple[Time, ...]) -> None:
        self._origin = origin
        self._stamp = stamp
        self._serial = origin.invocation.serial

    @property
    def stamp(self) -> tuple[Time, ...]:
        """The times of the message, usually one: it may cause work at or beyond any of them."""
        return self._stamp

    @property
    def time(self) -> Time:
        """The one time of the message. Raises AmbiguousTime when it has several or none."""
        if len(self._stamp) != 1:
            raise AmbiguousTime(path=self._origin.path, stamp=repr(self._stamp))
        return self._stamp[0]

    def require(self) -> None:
        """Raise CapabilityGone unless its invocation is under way."""
        if self._origin.invocation.serial != self._serial:
            raise CapabilityGone(path=self._origin.path, held=repr(self._stamp), ended="its invocation returned")

    def _refusal(self, port: int, connection: str) -> NotConnected:
        origin = self._origin
        return NotConnected(
            path=origin.path, held=repr(self._stamp), input=origin.port, output=port, connection=connection
        )

    def delayed(self, time: Time, port: int = 0) -> Capability:
        """Return a capability at `time` for output `port`, to keep.

        Raises NotConnected where this input cannot cause that output, NotBeyond where it cannot at `time`,
        CapabilityGone.
        """
        self.require()
        origin = self._origin
        least = origin.connection.get(port, ())
        if not least:
            raise self._refusal(port, "no connection")
        origin.accounts[port].require_time(time)
        for mine in self._stamp:
            for summary in least:
                result = advance(origin.order, mine, summary)
                if result is not None and origin.order.less_equal(result, time):
                    return gain(origin.accounts[port], time)
        raise NotBeyond(
            path=origin.path,
            held=repr(self._stamp[0] if len(self._stamp) == 1 else self._stamp),
            wanted=repr(time),
            action=f"delayed (through the connection to output {port})",
        )

    def retain(self, port: int = 0) -> Capability:
        """Return a capability at the message's time for output `port`, to keep.

        Raises NotConnected where the input cannot cause the output at that time, AmbiguousTime, CapabilityGone.
        """
        time = self.time
        self.require()
        self._permit(port)
        return gain(self._origin.accounts[port], time)

    def retain_all(self, port: int = 0) -> CapabilitySet:
        """Return the capabilities of the whole stamp for output `port`. Raises NotConnected, CapabilityGone."""
        from tidegauge.dataflow.capability_set import CapabilitySet  # which is made of capabilities

        self.require()
        self._permit(port)
        account = self._origin.accounts[port]
        return CapabilitySet(gain(account, time) for time in self._stamp)

    def _permit(self, port: int) -> None:
        least = self._origin.connection.get(port, ())
        if None not in least:
            raise self._refusal(port, "a connection that advances time" if least else "no connection")

    def stamp_for(self, account: Account) -> tuple[Time, ...]:
        """Return the stamp of batches sent with it. Raises NotConnected, ForeignCapability, CapabilityGone."""
        origin = self._origin
        if self._serial == origin.invocation.serial and account in origin.passing:
            return self._stamp
        self.require()
        if account.port >= len(origin.accounts) or origin.accounts[account.port] is not account:
            raise ForeignCapability(
                path=account.path, output=account.port, held=repr(self._stamp), other=origin.port, owner=origin.path
            )
        self._permit(account.port)
        return self._stamp

    def __repr__(self) -> str:
        return f"InputCapability({self._stamp!r}, {self._origin.path!r}, input {self._origin.port})"
