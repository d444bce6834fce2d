"""TG-036x, TG-037x and TG-096x: PostgreSQL as a source: its server, its slot, its tables and what their changes say.

>>> print(SlotAdvanced(source="the database db:5432/shop", slot="shop", confirmed="0/30", needed="0/20"))
TG-0370: the slot 'shop' of the database db:5432/shop was moved on to 0/30, and the flow needs everything from 0/20 on
  likely cause: another client read from this slot or advanced it
  what to do:   the changes in between are lost for good. Fill new tables: ...
"""

from __future__ import annotations

from tidegauge.errors.base import Definite, TidegaugeError, Transient

__all__ = [
    "LogRewritten",
    "LoginRefused",
    "PastAcknowledged",
    "PublicationUnfit",
    "ReplicaIdentityMissing",
    "ReplicationBroken",
    "RightMissing",
    "ServerAway",
    "ServerUnfit",
    "SlotActive",
    "SlotAdvanced",
    "SlotAwaits",
    "SlotForeign",
    "SlotLost",
    "SlotsExhausted",
    "SnapshotLost",
    "SourceTableTruncated",
    "TableChanged",
    "TableLocked",
    "TableRewritten",
    "TableUnfit",
    "UnchangedValueMissing",
    "ValueUnfit",
]


class ServerAway(Transient):
    """A server of PostgreSQL that does not answer, or ended the connection."""

    code = "TG-0360"
    what = "{source} cannot be read at present: {detail}"
    cause = "the server is down, restarts, has no connection free, or the network is cut"
    remedy = "nothing: the flow connects again by itself, and reads on where it was"


class TableLocked(Transient):
    """A table that somebody has locked against everybody."""

    code = "TG-0962"
    what = "{source} cannot be asked about a table that is locked: {detail}"
    cause = "a session has it in ACCESS EXCLUSIVE MODE: VACUUM FULL, CLUSTER, TRUNCATE or ALTER TABLE is under way"
    remedy = "nothing: the flow asks again by itself. If it was connected by then, changes go on coming"


class LoginRefused(Transient):
    """A server that does not let the role in."""

    code = "TG-0361"
    what = "{source} refuses the connection: {detail}"
    cause = (
        "a wrong password, a role or a database that is not there, a certificate that nobody vouches for, or a "
        "pg_hba.conf that does not let this role in; a line for the database counts for logical replication too"
    )
    remedy = (
        "correct the address, the reference to the password, the certificate, or pg_hba.conf; the flow tries again "
        "by itself"
    )


class RightMissing(Transient):
    """A role that lacks a right for replication."""

    code = "TG-0362"
    what = "the role {role!r} may not do what {source} needs: {detail}"
    cause = "the role was made without these rights"
    remedy = "as an administrator: {grant}. The flow tries again by itself"


class ServerUnfit(Transient):
    """A server that is not set up for logical replication."""

    code = "TG-0363"
    what = "{source} cannot be followed: {detail}"
    cause = "a server as it comes does not write what logical replication needs, and some cannot"
    remedy = "{remedy}. The flow tries again by itself"


class SlotsExhausted(Transient):
    """A server with no room for one more slot, or one more reader."""

    code = "TG-0364"
    what = "{source} has no room for another reader: {detail}"
    cause = "other slots or replicas take all that the server allows; a slot that nobody reads counts too"
    remedy = (
        "drop slots that are not used (SELECT slot_name, active FROM pg_replication_slots), or raise "
        "max_replication_slots or max_wal_senders and restart the server. The flow tries again by itself"
    )


class PublicationUnfit(Transient):
    """A publication that is not there, or does not say all that became of a table."""

    code = "TG-0365"
    what = "the publication {publication!r} of {source} {detail}"
    cause = "it was made for something else, or changed since"
    remedy = (
        "as the owner of the tables: {statement}. The flow tries again by itself. It never changes a publication: a "
        "table without a key in one would break the UPDATEs of applications"
    )


class ReplicaIdentityMissing(Transient):
    """A published table whose rows have nothing that tells them apart."""

    code = "TG-0366"
    what = "the table {table} of {source} has no replica identity: {detail}"
    cause = "it has no primary key, or the identity was set to something that is not there"
    remedy = (
        "add a primary key, or: ALTER TABLE {table} REPLICA IDENTITY FULL. Until then the server refuses every "
        "UPDATE and DELETE of this table, those of applications too. The flow tries again by itself"
    )


class TableUnfit(Transient):
    """A table that cannot be read as a stream."""

    code = "TG-0367"
    what = "the table {table} of {source} cannot be read: {detail}"
    cause = "a kind of table or of column that has no stable form yet"
    remedy = "{remedy}"


class SlotForeign(Definite):
    """A slot that is there, and that this flow did not make."""

    code = "TG-0368"
    what = "the slot {slot!r} of {source} is not this flow's: {detail}"
    cause = "another flow or program has a slot of this name, or the folder of this source was lost"
    remedy = (
        "pass another name as slot=; or, if nobody needs it, SELECT pg_drop_replication_slot('{slot}'). Then run: "
        "tidegauge resume FLOW SOURCE"
    )


class SlotLost(Definite):
    """A slot that can no longer give what the flow lacks."""

    code = "TG-0369"
    what = "the slot {slot!r} of {source} is lost: {detail}"
    cause = (
        "somebody dropped it, the server removed log that it needed (max_slot_wal_keep_size), or another server was "
        "promoted, which has no slots"
    )
    remedy = (
        "the changes since the last epoch are lost for good. Fill new tables: declare the source under another name, "
        "with other outputs. Published epochs stay readable"
    )


class SlotAdvanced(Definite):
    """A slot that somebody else moved on."""

    code = "TG-0370"
    of_start = True
    what = "the slot {slot!r} of {source} was moved on to {confirmed}, and the flow needs everything from {needed} on"
    cause = "another client read from this slot or advanced it"
    remedy = (
        "the changes in between are lost for good. Fill new tables: declare the source under another name, with "
        "other outputs. Published epochs stay readable"
    )


class SlotAwaits(Transient):
    """A slot that the server cannot make yet, since a transaction is open."""

    code = "TG-0993"
    what = "the slot {slot!r} of {source} is yet to be made: the server waits for {awaited}"
    cause = "a slot begins where each transaction that was open has ended, anybody's, in any database of the server"
    remedy = (
        "nothing: the flow goes on when the transaction ends. To end it at once, as an administrator: {statement}"
    )


class SlotActive(Transient):
    """A slot that another client reads."""

    code = "TG-0371"
    what = "the slot {slot!r} of {source} is read by another client at present: {detail}"
    cause = "the connection of a driver that was killed has not ended yet, or another flow reads this slot"
    remedy = (
        "nothing, if it passes within a minute (wal_sender_timeout). Otherwise see who it is (SELECT * FROM "
        "pg_stat_activity WHERE pid = ...), and pass another slot= if it is another flow"
    )


class SnapshotLost(Definite):
    """A snapshot whose files are gone, though not every table has its rows."""

    code = "TG-0372"
    what = "the snapshot of {source} at {lsn} is bound, not all tables have it, and {detail}"
    cause = "the folder of this source was removed, or the flow runs on another machine without it"
    remedy = (
        "bring the folder back, and run: tidegauge resume FLOW SOURCE. If it is gone, fill new tables: declare the "
        "source under another name, with other outputs"
    )


class SourceTableTruncated(Definite):
    """A TRUNCATE, which no row tells of."""

    code = "TG-0373"
    of_stream = True
    what = "the table {table} was truncated at {lsn}"
    cause = "a TRUNCATE, also one that a CASCADE brought about: it removes rows without naming any"
    remedy = (
        "the outputs of this table end here, and the others go on. Drop these outputs (tidegauge outputs drop FLOW "
        "OUTPUT): until then the server keeps its log for them. Fill new tables from a source of another name. In "
        "the application, DELETE FROM instead"
    )


class TableRewritten(Transient):
    """A table that was rewritten between the place of its first rows and the moment when they were to be read."""

    code = "TG-0965"
    what = "the table {table} of {source} was rewritten, or dropped, while its first rows were about to be read"
    cause = (
        "VACUUM FULL, CLUSTER, TRUNCATE or an ALTER TABLE that rewrites: an older view of the table would have its "
        "rows in other places, or none"
    )
    remedy = "nothing: the flow begins to read the first rows again by itself"


class TableChanged(Definite):
    """A table that is no longer the one that was declared."""

    code = "TG-0374"
    of_stream = True
    what = "the table {table} is not what it was: {detail}"
    cause = (
        "a column was dropped or renamed, or the table was renamed, or dropped, and perhaps made again; or it was "
        "taken out of the publication, so that changes are missing; or a partition of it was attached with rows, or "
        "was dropped, detached or truncated"
    )
    remedy = (
        "the outputs of this table end here, and the others go on. If no row was changed since, bring the table or "
        "column back under its name and run the flow again. To keep the rows of partitions that are gone, set "
        "keep_dropped_partitions=True. Otherwise drop these outputs (tidegauge outputs drop FLOW OUTPUT): until then "
        "the server keeps its log for them. Fill new tables from a source of another name"
    )


class UnchangedValueMissing(TidegaugeError):
    """An update that leaves out a large value which it did not change."""

    code = "TG-0375"
    what = "column {column} of {table}: the update leaves out its large value, which it did not change"
    cause = (
        "the table's replica identity does not have the column, so the server sends it only when it changes, and no "
        "earlier change of the transaction has it. A table by key does not fill it in where it is one of the key, "
        "nor where bad records are skipped, or were ever collected: then its row may be an older one"
    )
    remedy = (
        "ALTER TABLE {table} REPLICA IDENTITY FULL, which counts for later updates; collect this one (errors), and "
        "write the row's value anew"
    )


class ValueUnfit(TidegaugeError):
    """A value that its column's type in Arrow does not have."""

    code = "TG-0376"
    what = "column {column} of {table}: {value} is no {type}"
    cause = (
        "an infinite date, one before the year 1 or after 9999, a NaN in a numeric; or the column's type was changed"
    )
    remedy = "correct the value, and collect such changes (errors)"


class ReplicationBroken(Definite):
    """A message of the server that is none of the protocol."""

    code = "TG-0377"
    what = "the server sent {message}, which is no message of pgoutput: {problem}"
    cause = "a server, or something between, that speaks another protocol"
    remedy = "check what answers at this address, then run: tidegauge resume FLOW SOURCE"


class PastAcknowledged(Transient):
    """An output that lacks what upstream was told is durable."""

    code = "TG-0378"
    of_start = True
    what = (
        "{source}: an output needs the rows from {needed} on, and the server was told that everything before "
        "{confirmed} is durable"
    )
    cause = "the store of the flow and all its tables are older backups, or the tables were removed"
    remedy = (
        "bring the tables back, or declare the source once more under another name, with other outputs. The flow "
        "tries again by itself"
    )


class LogRewritten(Definite):
    """A server that has other transactions at places of its log that were read already."""

    code = "TG-0960"
    what = (
        "the log of {source} is another one before {before}: the last transaction there that changed the tables was "
        "{known}, and is {found} now"
    )
    cause = "the server's files were put back from an older copy without recovery, so it wrote other things there"
    remedy = (
        "the tables have rows that the database has not, and lack some. Fill new tables: declare the source under "
        "another name, with other outputs. Published epochs stay readable. To put a server back, recover it from an "
        "archive of its log: that makes a new timeline, which is told apart"
    )
