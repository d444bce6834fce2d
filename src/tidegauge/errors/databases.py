"""TG-0379, TG-0966, TG-0976: databases as sources, whatever their server is: the folder, and tables that come and go.

>>> print(FolderTaken(path="my/shop/db", number=1, detail="connection 2 of process 57 on node1 has begun since"))
TG-0976: connection 1 cannot write to my/shop/db: connection 2 of process 57 on node1 has begun since
  likely cause: another driver of the flow has taken over, ...
  what to do:   nothing, if another driver has taken over: ...
"""

from __future__ import annotations

from tidegauge.errors.base import Transient

__all__ = ["FolderDamaged", "FolderTaken", "TableTakenBack"]


class FolderDamaged(Transient):
    """A file of a source's folder that says nothing."""

    code = "TG-0379"
    what = "the file {path} cannot be understood: {detail}"
    cause = "somebody changed it, a disk lost it, or a newer version wrote it"
    remedy = (
        "put it back from a backup, and the flow goes on by itself. If there is none and all outputs hold the first "
        "rows, remove it: columns are looked up again, and bound places tell where to go on"
    )


class FolderTaken(Transient):
    """A connection that is not to write to its source's folder any more, or cannot at present."""

    code = "TG-0976"
    what = "connection {number} cannot write to {path}: {detail}"
    cause = "another driver of the flow has taken over, or one that was stopped in the midst of a change has its lock"
    remedy = (
        "nothing, if another driver has taken over: this one finds that its lease is lost, and ends. Otherwise let "
        "the process that is named go on, or end it; the flow then goes on by itself"
    )


class TableTakenBack(Transient):
    """A table that was taken out of a source, and is declared again."""

    code = "TG-0966"
    what = "the table {table} of {source} was taken out of this source at {place}, and is declared again"
    cause = "tables= has it again; its changes in between were ignored, so its outputs would lack them"
    remedy = (
        "take it out again, and the others go on. To follow it, declare a source of another name for it, with other "
        "outputs: they begin with all of its rows"
    )
