"""TG-056x: records that are pushed, and the bindings that give them their epochs.

>>> print(BoundTooLate(epoch=3, time=5))
TG-0560: epoch 3 was bound in a message at 5, when it may have been taken for final
  likely cause: a stream of bindings that tells of an epoch at a later time than the epoch itself
  what to do:   send each binding at or before its epoch, and let its capability go only then
"""

from __future__ import annotations

from tidegauge.errors.base import TidegaugeError

__all__ = ["BoundTooLate", "RecordBehindFrontier", "RoomClosed", "TooMuchUnbound", "UnplacedRecords"]


class BoundTooLate(TidegaugeError):
    """A binding that arrived after its epoch became final."""

    code = "TG-0560"
    what = "epoch {epoch} was bound in a message at {time}, when it may have been taken for final"
    cause = "a stream of bindings that tells of an epoch at a later time than the epoch itself"
    remedy = "send each binding at or before its epoch, and let its capability go only then"


class RecordBehindFrontier(TidegaugeError):
    """A record that came after its source had said that it would not come."""

    code = "TG-0561"
    what = (
        "source {source!r}: a record at position {position} of partition {partition!r} came after the frontier had "
        "passed {passed}"
    )
    cause = "a reader that advanced its frontier before it had given all records, or that gave one twice"
    remedy = "drop records that were given before, and downgrade the reader's capability only behind given records"


class TooMuchUnbound(TidegaugeError):
    """More records wait for a binding than allowed."""

    code = "TG-0562"
    what = "source {source!r}: {waiting} records wait for a binding, and at most {limit} may"
    cause = "a reader that reads on without asking for room, while nothing is bound"
    remedy = "reserve room before reading, and bind upstream's position before reading up to it"


class RoomClosed(TidegaugeError):
    """Room was requested although nothing will be read any more."""

    code = "TG-0564"
    what = "there is no room for {wanted} records more, and there will be none: {why}"
    cause = "the flow that the records were for has ended, or an operator of it has failed"
    remedy = "end the reader; the next run reads again whatever it has not given"


class UnplacedRecords(TidegaugeError):
    """A batch that does not say where its records belong."""

    code = "TG-0563"
    what = "source {source!r}: the places of a batch cannot be read: {problem}"
    cause = "a column or a value that is missing, or a position that is no integer from 0 to 2**63 - 1"
    remedy = "give each record its partition, a text or an integer, and its position in that partition"
