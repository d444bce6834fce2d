"""TG-047x and TG-048x: writing to PostgreSQL.

>>> print(PostgresRefused(table="public.orders", output="shop:orders", lower=3, last=3, detail="division by zero"))
TG-0476: PostgreSQL refuses the rows of 'shop:orders' for public.orders, epochs 3 to 3: division by zero
  likely cause: a constraint, a type or a trigger of the table does not let them in
  what to do:   change the rows in the flow, or the table, and resume the output; nothing of these epochs was written
"""

from __future__ import annotations

from tidegauge.errors.base import Definite, TidegaugeError, Transient

__all__ = [
    "InvalidPostgresUrl",
    "PostgresAway",
    "PostgresBusy",
    "PostgresForbidden",
    "PostgresFull",
    "PostgresRefused",
    "PostgresTrouble",
    "ProgressApart",
    "ServerColumnUnfit",
    "ServerTableUnfit",
    "ServerValueUnfit",
    "TableKeptOtherwise",
]


class InvalidPostgresUrl(TidegaugeError):
    """An address that is not one of a PostgreSQL database."""

    code = "TG-0470"
    what = "the address {url} of a PostgresSink cannot be used: {detail}"
    cause = "it is not the address of a PostgreSQL database, or its client library is not installed"
    remedy = (
        "write it like postgresql://user@host/database, with password='env:NAME' beside it; "
        "pip install 'tidegauge[postgres]' installs the client"
    )


class ServerColumnUnfit(TidegaugeError):
    """A column that a table in PostgreSQL cannot have."""

    code = "TG-0471"
    what = "the column {column!r} ({type}) cannot be in a table in PostgreSQL: {problem}"
    cause = "PostgreSQL has other rules for names and types than files have"
    remedy = "rename, cast or drop the column in the flow; nested values can be a string of JSON"


class ServerValueUnfit(Definite):
    """A value that PostgreSQL cannot hold."""

    code = "TG-0472"
    what = "epoch {epoch} has a value in the column {column!r} that PostgreSQL cannot hold: {problem}"
    cause = "text in PostgreSQL has no zero bytes, and the sink writes years from 1 to 9999"
    remedy = "replace such values in the flow, or send these rows elsewhere with a filter"


class PostgresAway(Transient):
    """A server that cannot be reached, or takes no writes at present."""

    code = "TG-0473"
    patient = True
    what = "the server of the table {table} does not answer as it should: {detail}"
    cause = "it is down, restarting, a standby or full of connections; or the address or the password is wrong"
    remedy = "bring it back, or correct the address; the flow tries again by itself, other outputs go on"


class PostgresBusy(Transient):
    """A transaction that others kept from being committed, or that took longer than it may."""

    code = "TG-0474"
    patient = True
    what = "the transaction on the table {table} was given up: {detail}"
    cause = "others hold locks on the table, or the statement_timeout of the role is too short for a commit"
    remedy = (
        "end the transactions that hold the table (pg_stat_activity shows them), or raise the role's "
        "statement_timeout; the flow tries again by itself"
    )


class PostgresForbidden(Transient):
    """A role that lacks a privilege."""

    code = "TG-0475"
    patient = True
    what = "the role of the sink may not write to the table {table}: {detail}"
    cause = "it lacks a privilege on the table, on the schema 'tidegauge', or on the database"
    remedy = (
        "GRANT the missing privilege, or let an administrator make the schema: CREATE SCHEMA tidegauge "
        "AUTHORIZATION role; the flow tries again by itself"
    )


class PostgresRefused(Definite):
    """Rows that the server does not take."""

    code = "TG-0476"
    what = "PostgreSQL refuses the rows of {output!r} for {table}, epochs {lower} to {last}: {detail}"
    cause = "a constraint, a type or a trigger of the table does not let them in"
    remedy = "change the rows in the flow, or the table, and resume the output; nothing of these epochs was written"


class PostgresFull(Transient):
    """A server without room."""

    code = "TG-0477"
    patient = True
    what = "the server of the table {table} has no room left: {detail}"
    cause = "its disk or its memory is full, or a limit of the role is reached"
    remedy = "make room; the flow goes on by itself"


class PostgresTrouble(Transient):
    """An error of the server that has no name here."""

    code = "TG-0478"
    what = "the server of the table {table} reports {state}: {detail}"
    cause = "trouble of the server, which its log describes"
    remedy = "look at the server's log; the flow tries again a few times, and stops if it does not pass"


class ServerTableUnfit(Definite):
    """A table in PostgreSQL that cannot take the rows of its output: nothing was changed."""

    code = "TG-0479"
    what = "the table {table} cannot take the rows of {output!r}: {problem}"
    cause = "it was made or altered by somebody else than this sink"
    remedy = "alter the table accordingly, or name a table that is not there yet; nothing was changed"


class TableKeptOtherwise(Definite):
    """A table in PostgreSQL that keeps its rows by another key than its output is to, or keeps all of them."""

    code = "TG-0480"
    what = "the table {table} keeps {held}, and the output {output} is to keep {wanted} there"
    cause = "envelope= or key= of its PostgresSink was changed since the table was written"
    remedy = "give the sink the envelope and key that the table was written with, or name another table"


class ProgressApart(Definite):
    """A table with rows of epochs that it does not hold, as its progress says."""

    code = "TG-0481"
    what = "the table {table} has rows of epoch {epoch}, and 'tidegauge.progress' says that it ends before {upper}"
    cause = "the progress was set back, or restored without the table; or somebody else has added rows"
    remedy = (
        "restore both from one backup; or DELETE the rows with _epoch >= {upper}, and the flow writes its own "
        "ones again"
    )
