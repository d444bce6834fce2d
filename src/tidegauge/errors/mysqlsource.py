"""TG-0332 to TG-0348, TG-0961, TG-0963, TG-0996: MariaDB and MySQL as sources: servers, logs, tables, changes.

>>> print(BinlogPurged(source="the database db", needed="3-20", found="it begins after 3-30", said="purged"))
TG-0338: the log of the database db no longer has what the flow needs, from 3-20 on: it begins after 3-30 (purged)
  likely cause: the server removed log files (PURGE BINARY LOGS, expire_logs_days, RESET MASTER) ...
  what to do:   the changes in between are lost for good. Fill new tables: ...
"""

from __future__ import annotations

from tidegauge.errors.base import Definite, TidegaugeError, Transient

__all__ = [
    "BinlogBroken",
    "BinlogClosed",
    "BinlogKeyMissing",
    "BinlogLoginRefused",
    "BinlogPastFirstRows",
    "BinlogPurged",
    "BinlogRightMissing",
    "BinlogRowsUntold",
    "BinlogServerAway",
    "BinlogServerUnfit",
    "BinlogSnapshotLost",
    "BinlogTableChanged",
    "BinlogTableTruncated",
    "BinlogTableUnfit",
    "BinlogUnfit",
    "BinlogValueUnfit",
    "FirstRowsOutdated",
    "FirstRowsUnwritten",
]

_OVER = (
    "the outputs of this table end here, and those of others go on. Take these outputs out of the flow and drop them "
    "(tidegauge outputs drop FLOW OUTPUT): until then the flow needs the server's log from here on. Fill new tables "
    "from a source of another name"
)
_ANEW = "fill new tables: declare the source under another name, with other outputs. Published epochs stay readable"


class BinlogServerAway(Transient):
    """A server that does not answer, or ended the connection."""

    code = "TG-0332"
    what = "{source} cannot be read at present: {detail}"
    cause = "the server is down, restarts, has no connection free, or the network is cut"
    remedy = "nothing: the flow connects again by itself, and reads on where it was"


class BinlogLoginRefused(Transient):
    """A server that does not let the user in."""

    code = "TG-0333"
    what = "{source} refuses the connection: {detail}"
    cause = "a wrong password, a user or a database that is not there, or TLS that only one side wants"
    remedy = "correct the address or the reference to the password; the flow tries again by itself"


class BinlogRightMissing(Transient):
    """A user who may not read the log."""

    code = "TG-0334"
    what = "the user may not do what {source} needs: {detail}"
    cause = "the user was made without these rights"
    remedy = "as an administrator: {grant}. The flow tries again by itself"


class BinlogServerUnfit(Transient):
    """A server whose log does not say enough."""

    code = "TG-0335"
    what = "{source} cannot be followed: {detail}"
    cause = "a server as it comes writes less than this needs, and some cannot"
    remedy = "{remedy}. The flow tries again by itself"


class BinlogTableUnfit(Transient):
    """A table that cannot be read as a stream."""

    code = "TG-0336"
    what = "the table {table} of {source} cannot be read: {detail}"
    cause = "a name that is misspelt, a missing right, or a kind of table or column that is not supported"
    remedy = "{remedy}"


class BinlogKeyMissing(Transient):
    """A table without a primary key."""

    code = "TG-0337"
    what = "the table {table} of {source} has no primary key"
    cause = "nothing tells its rows apart, so a table by key could not follow it"
    remedy = "add a primary key (ALTER TABLE {table} ADD PRIMARY KEY ...). The flow tries again by itself"


class BinlogPurged(Definite):
    """A log that no longer has what the flow lacks."""

    code = "TG-0338"
    of_start = True
    what = "the log of {source} no longer has what the flow needs, from {needed} on: {found} ({said})"
    cause = (
        "the server removed log files (PURGE BINARY LOGS, expire_logs_days, RESET MASTER) while the flow was "
        "stopped, or another server answers, which never had these transactions"
    )
    remedy = "the changes in between are lost for good. Fill new tables: " + _ANEW.partition(": ")[2]


class BinlogClosed(Definite):
    """A server that goes on without its log."""

    code = "TG-0996"
    what = "{source} goes on without its log: changes since then are in no log"
    cause = (
        "the server could not write to its log or begin a new file (a full disk, a folder that is gone), and turned "
        "it off: MariaDB always does so, MySQL with binlog_error_action = IGNORE_ERROR"
    )
    remedy = (
        "put right what the server's own log of errors names, and restart it. These changes are lost for good, also "
        "if you resume the source. Fill new tables: " + _ANEW.partition(": ")[2]
    )


class BinlogBroken(Definite):
    """Bytes that are no event of the log."""

    code = "TG-0339"
    what = "the server sent an event that cannot be read ({event}): {problem}"
    cause = "damage to the log, a server of another kind, or something between that changes bytes"
    remedy = "check the log with mariadb-binlog, then run: tidegauge resume FLOW SOURCE"


class BinlogUnfit(Definite):
    """A transaction that the log does not tell row by row, of tables that nobody knows."""

    code = "TG-0343"
    what = "the transaction {gtid} of {source} cannot be followed: {problem}"
    cause = "a session with settings of its own (binlog_format), or a server that writes events of another kind"
    remedy = _ANEW


class BinlogTableTruncated(Definite):
    """A table that was emptied, which no row tells of."""

    code = "TG-0344"
    of_stream = True
    what = "the table {table} was emptied by {gtid}: {statement}"
    cause = "TRUNCATE removes rows without naming any"
    remedy = _OVER + ". In the application, delete the rows instead"


class BinlogTableChanged(Definite):
    """A table that is no longer the one that was declared."""

    code = "TG-0345"
    of_stream = True
    what = "the table {table} is not what it was: {detail}"
    cause = (
        "a change of its columns that does more than add, a change of its rows that the log does not have (of "
        "partitions, ALTER IGNORE), or the table was dropped, renamed or made again"
    )
    remedy = _OVER + ", with the present columns"


class BinlogRowsUntold(Definite):
    """Rows of a table that the log does not tell in whole, or not in one order."""

    code = "TG-0961"
    of_stream = True
    what = "the transaction {gtid} changed rows of {table} in a way that cannot be followed: {problem}"
    cause = (
        "a session with settings of its own (binlog_row_image, gtid_domain_id), XA, or a server that had other "
        "settings for a while"
    )
    remedy = _OVER


class FirstRowsOutdated(Transient):
    """First rows of a table that became another one while they were read."""

    code = "TG-0963"
    what = "first rows of {source} have to be read anew: {detail}"
    cause = "a table was emptied, altered, dropped or renamed while they were read"
    remedy = "nothing: the flow reads them again by itself; tables that have theirs go on"


class FirstRowsUnwritten(Transient):
    """First rows that cannot be written to the source's folder."""

    code = "TG-0964"
    what = "first rows of {source} cannot be written to {path}: {detail}"
    cause = "the disk of the source's folder is full, or cannot be written to at present"
    remedy = "make room there. Nothing is lost: the flow tries again by itself"


class BinlogValueUnfit(TidegaugeError):
    """A value that its column's type in Arrow does not have."""

    code = "TG-0346"
    what = "column {column} of {table}: {value} is no {type}"
    cause = "a date of zeros, such as 0000-00-00 or 2026-00-00, or bytes that are no text of the column's charset"
    remedy = "correct the value, and collect such changes (errors)"


class BinlogSnapshotLost(Definite):
    """First rows whose files are gone, though not every table has its rows."""

    code = "TG-0347"
    what = "the first rows of {source} at {gtid} are bound, not all tables have them, and {detail}"
    cause = "the folder of this source was removed, or the flow runs on another machine without it"
    remedy = (
        "bring the folder back, and run: tidegauge resume FLOW SOURCE. If it is gone, fill new tables: declare the "
        "source under another name, with other outputs"
    )


class BinlogPastFirstRows(Transient):
    """An output that lacks the first rows, which are gone."""

    code = "TG-0348"
    of_start = True
    what = "{source}: an output needs the first rows, at {gtid}, and all outputs that there were have them"
    cause = "the store of the flow and all its tables are older backups, or the tables were removed"
    remedy = (
        "bring the tables back, or declare the source once more under another name, with other outputs. The flow "
        "tries again by itself"
    )
