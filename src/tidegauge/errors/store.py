"""TG-02xx: the store, the remap table and the lease.

>>> print(NotYetBound(source="orders", partition="p0", position=9, upper=3))
TG-0201: position 9 of partition 'p0' of source 'orders' is in no epoch yet; epochs below 3 are bound
  likely cause: the position was read or asked for before a tick bound it
  what to do:   ask again after the next epoch
"""

from __future__ import annotations

from tidegauge.errors.base import TidegaugeError, Transient

__all__ = [
    "ClockBehind",
    "ClockChanged",
    "ClocksApart",
    "CorruptStore",
    "DamagedStore",
    "EpochBelowSince",
    "EpochNotMinted",
    "FlowAlreadyRunning",
    "FrontierRegressed",
    "HoldNotBound",
    "HoldTooEarly",
    "InvalidStoreUrl",
    "LeaseHeld",
    "LeaseLost",
    "NotAStore",
    "NotYetBound",
    "NothingHeld",
    "SchemaChanged",
    "SinceHeld",
    "SinceTooFar",
    "StoreAway",
    "StoreBusy",
    "StoreDriverMissing",
    "StoreFailed",
    "StoreFull",
    "StoreNotWritable",
    "StoreReplaced",
    "StoreTooNew",
    "StoreUnreachable",
    "UnstorableType",
    "UpperMismatch",
    "WatermarkRegressed",
]


class NotYetBound(TidegaugeError):
    """A position that no epoch holds yet."""

    code = "TG-0201"
    what = (
        "position {position} of partition {partition!r} of source {source!r} is in no epoch yet; "
        "epochs below {upper} are bound"
    )
    cause = "the position was read or asked for before a tick bound it"
    remedy = "ask again after the next epoch"


class EpochNotMinted(TidegaugeError):
    """An epoch at or past the upper of the timeline."""

    code = "TG-0202"
    what = "epoch {epoch} of source {source!r} is not bound yet; epochs below {upper} are"
    cause = "the epoch lies in the future of the flow, or belongs to another flow"
    remedy = "ask for an epoch below {upper}, or wait"


class EpochBelowSince(TidegaugeError):
    """An epoch whose binding was folded into a later one."""

    code = "TG-0203"
    what = "epoch {epoch} of source {source!r} can no longer be told from those before epoch {since}"
    cause = "the flow let its history be compacted up to epoch {since}"
    remedy = "ask for epoch {since} or a later one; tables still hold every row with its own epoch"


class FlowAlreadyRunning(TidegaugeError):
    """Another driver holds the lease of the flow."""

    code = "TG-0204"
    what = "flow {flow!r} is already run by {holder} on {host}, process {pid}, since {since}"
    cause = "another driver of this flow is running, or stopped without a word less than {patience:g} seconds ago"
    remedy = (
        "stop that process, or wait until its lease has not been renewed for {patience:g} seconds; if it is gone and "
        "the lease stays, as after a clock that was wrong: tidegauge lease break FLOW"
    )


class LeaseLost(TidegaugeError):
    """A driver wrote after it lost its lease; nothing was written."""

    code = "TG-0205"
    what = "this driver no longer holds the lease of flow {flow!r}: {now}"
    cause = "it did not renew its lease in time, and another driver took over"
    remedy = "let the other driver run, or stop it and start this one again; nothing was written"


class UpperMismatch(TidegaugeError):
    """A compare-and-append that found another upper; nothing was written."""

    code = "TG-0206"
    what = "flow {flow!r} is {what} up to epoch {actual}, not {expected}"
    cause = (
        "the store was put back to an older copy while this driver ran; or the write was done already, or was based "
        "on an old view of the timeline"
    )
    remedy = "run the flow again, which compares the store with the tables first; nothing was written"


class StoreTooNew(TidegaugeError):
    """A store that a newer version of Tidegauge wrote."""

    code = "TG-0207"
    what = "the store {url} has layout {found}; this version knows layouts up to {known}"
    cause = "a newer version of Tidegauge wrote it"
    remedy = "install that version, or use another store; nothing was changed"


class InvalidStoreUrl(TidegaugeError):
    """A store URL that cannot be used."""

    code = "TG-0208"
    what = "the store URL {url} cannot be used: {detail}"
    cause = "not the URL of a SQLite file or of a PostgreSQL database"
    remedy = "write it like sqlite:///shop.db or postgresql://user@host/database"


class NotAStore(TidegaugeError):
    """A database or a file that is something else."""

    code = "TG-0209"
    what = "{url} is not a Tidegauge store: {detail}"
    cause = "the URL points at a file or a database of something else, or the file is damaged"
    remedy = "check the path; to begin a new store, choose a path that does not exist"


class StoreBusy(Transient):
    """Another process held the database locked for longer than we wait."""

    code = "TG-0210"
    what = "the store {url} is locked by another process: {detail}"
    cause = "a long transaction, a backup or an open editor holds the database"
    remedy = "close it; if the flow stopped, start it again: it has lost nothing"


class StoreNotWritable(TidegaugeError):
    """A place where a store cannot be written."""

    code = "TG-0211"
    what = "the store {url} cannot be written: {detail}"
    cause = "the folder is read-only or not a folder, or this user may not write to the database"
    remedy = "choose a place that this user may write to; the flow has lost nothing"


class StoreNotReadable(TidegaugeError):
    """A store that this user may not read."""

    code = "TG-0257"
    what = "the store {url} cannot be read: {detail}"
    cause = "the store belongs to another user, who has not let this one read it"
    remedy = "ask its owner for the right to read the file and to search its folders, or to SELECT from the tables"


class StoreFull(Transient):
    """A store whose disk has no room left."""

    code = "TG-0255"
    patient = True
    what = "the store {url} has no room left: {detail}"
    cause = "its disk is full, or a quota or a limit on the size of files is reached"
    remedy = "make room; a running flow goes on by itself, run other commands again"


class SchemaChanged(TidegaugeError):
    """A source was declared with columns that differ from those in the store."""

    code = "TG-0212"
    what = "source {source!r} has other columns than it was started with: {differences}"
    cause = "the declared schema was edited, or upstream is now inferred differently"
    remedy = "declare the columns as before, or give the source a new name"


class FrontierRegressed(TidegaugeError):
    """A proposal behind the bound frontier."""

    code = "TG-0213"
    what = "source {source!r} cannot go back: {detail}"
    cause = "the proposal was based on an old view, or upstream was recreated"
    remedy = "probe again; bound epochs stay bound"


class SinceTooFar(TidegaugeError):
    """A compaction that would leave an output without the binding it resumes from."""

    code = "TG-0214"
    what = "flow {flow!r} cannot forget up to epoch {since}; the furthest is {furthest}"
    cause = "epochs below {published} are published, and resuming needs the last of them to be distinct"
    remedy = "advance since to {furthest} at most"


class UnstorableType(TidegaugeError):
    """A column type that the store cannot describe."""

    code = "TG-0215"
    what = "column {column!r} has the type {type}, which a source cannot have"
    cause = "not one of bool, integers, floats, string, binary, date32, timestamp, decimal128, list, struct, map"
    remedy = "declare the column with one of these types"


class DamagedStore(TidegaugeError):
    """Rows of the store that contradict each other."""

    code = "TG-0216"
    what = "the bindings of source {source!r} are damaged: {detail}"
    cause = "the database was edited by hand, or restored in part"
    remedy = "restore the whole database from one backup"


class StoreDriverMissing(TidegaugeError):
    """The database driver is not installed."""

    code = "TG-0217"
    what = "the store {url} needs the Python package {package!r}, which cannot be imported: {detail}"
    cause = "the driver of this database is an extra"
    remedy = "pip install 'tidegauge[postgres]'"


class StoreFailed(Transient):
    """The database reported some other error."""

    code = "TG-0218"
    what = "the store {url} failed: {detail}"
    cause = "an error in the database itself, or in its disk"
    remedy = "check the database and start again: the flow has lost nothing"


class StoreUnreachable(Transient):
    """The database server does not answer, or refuses the login."""

    code = "TG-0220"
    patient = True
    what = "the store {url} cannot be reached: {detail}"
    cause = "the server is down or far away, refuses the user or the password, or has no such database"
    remedy = "try the same address with psql; a running flow goes on by itself, run other commands again"


class CorruptStore(TidegaugeError):
    """A database whose pages are damaged: a file that was cut short or overwritten, a failing disk."""

    code = "TG-0221"
    what = "the store {url} is damaged: {detail}. Of its tables {intact}. Nothing was written"
    cause = (
        "the file was copied while it was open, cut short or overwritten, or put beside the -wal of another one, "
        "or its disk fails"
    )
    remedy = (
        "keep a copy of it, with its -wal if there is one, and restore the store from a backup, with no -wal and "
        "-shm beside it; what the flow wrote to its outputs was not touched"
    )


class WatermarkRegressed(TidegaugeError):
    """A state of a source that takes back how complete its data is."""

    code = "TG-0230"
    what = "the watermark of source {source!r} cannot go back: it is at {known}, and its new state says {found}"
    cause = "the source computes its watermark from its latest data only, or upstream was restored from a backup"
    remedy = "let the source keep the greatest watermark that it has reported; nothing of this state was bound"


class ClockChanged(TidegaugeError):
    """A source that was declared with another kind of clock than it was started with."""

    code = "TG-0231"
    what = "source {source!r} was started with the clock {stored!r} and is declared with {declared!r}"
    cause = "another kind of upstream was put under an old name, whose positions mean something else"
    remedy = "declare it as before, or give it a new name; nothing was written"


class HoldTooEarly(TidegaugeError):
    """A hold on an epoch that was compacted already."""

    code = "TG-0222"
    what = "{owner!r} cannot hold epoch {epoch} of flow {flow!r}: it can no longer be told from those before {since}"
    cause = "the flow let its history be compacted up to epoch {since} before it was held"
    remedy = "hold epoch {since} or a later one"


class HoldNotBound(TidegaugeError):
    """A hold on an epoch that is not bound yet."""

    code = "TG-0223"
    what = "{owner!r} cannot hold epoch {epoch} of flow {flow!r}: epochs below {upper} are bound"
    cause = "the epoch lies in the future of the flow, or belongs to another flow"
    remedy = "hold an epoch below {upper}, or wait until it is bound"


class SinceHeld(TidegaugeError):
    """A compaction beyond an epoch that somebody holds."""

    code = "TG-0224"
    what = "flow {flow!r} cannot forget up to epoch {since}: {owner!r} holds epoch {epoch}"
    cause = "a reader or a backfill still needs the epochs from {epoch} on to be distinct"
    remedy = "compact up to epoch {epoch}, or release the hold once its owner is done"


class StoreReplaced(TidegaugeError):
    """A store's file that was moved, removed or restored while this process had it open."""

    code = "TG-0250"
    what = "the store {url} is no longer the file that this process has open: {detail}"
    cause = "the file or its folder was moved, removed, or restored from a backup, while a driver was running"
    remedy = (
        "stop every driver of this store, find out which file is the right one, and put it at the path together with "
        "its own -wal and -shm, or with none; then start again. This process has written nothing since"
    )


class StoreAway(Transient):
    """A store's file that cannot be looked at, read or written at present.

    moved: whether it is gone from a disk that is there, so that it was moved by somebody.
    """

    code = "TG-0256"
    patient = True
    what = "the file of the store {url} is away: {detail}"
    cause = "its disk gives errors or is not mounted, its file or folder was moved, or this user may not look there"
    remedy = (
        "bring the disk back, or put the file back together with its own -wal and -shm. A running flow then goes on "
        "by itself; it ends after half a minute if the file was moved and its disk is there. Other commands can be "
        "given again"
    )


class ClockBehind(TidegaugeError):
    """A clock that puts the newest epoch far into the future."""

    code = "TG-0251"
    what = (
        "the newest epoch of flow {flow!r}, {epoch}, was minted at {minted_at}, and the clock of this machine says "
        "{now}"
    )
    cause = "this clock is behind, or the clock of the machine that minted the epoch was ahead"
    remedy = (
        "put this machine's clock right; if it is right, put the epochs' times right (tidegauge retime FLOW) and "
        "start again. Nothing was bound"
    )


class ClocksApart(TidegaugeError):
    """A machine whose clock is far from that of the store's server."""

    code = "TG-0252"
    what = "the clock of this machine says {now}, and that of the server of the store {url} says {server}"
    cause = "one of the two clocks is wrong, and so the times of epochs would be wrong"
    remedy = "put the clocks right and start again; nothing was written"


class LeaseHeld(TidegaugeError):
    """A lease that was not broken, because its holder is alive on this machine."""

    code = "TG-0253"
    what = "the lease of flow {flow!r} is held by a process that is alive on this machine: {holder}"
    cause = "the driver is running"
    remedy = "stop it (kill {pid}); with --force its lease is broken anyway, and it stops at its next write"


class NothingHeld(TidegaugeError):
    """An attempt to break a lease that nobody holds."""

    code = "TG-0254"
    what = "nobody holds the lease of flow {flow!r}"
    cause = "the driver has ended, or its lease was broken already"
    remedy = "start the flow: nothing prevents it"
