"""How a session begins to receive the log from a position on, and what it says if the log does not have that.

Invariant: what lies behind a position comes from there, or an error names the position and what the log has.

>>> from tidegauge.sources.mysql.servers import MARIADB_SERVER
>>> MARIADB_SERVER.by_sets
False
"""

from __future__ import annotations

from collections.abc import Mapping

from tidegauge.errors.mysqlsource import BinlogPurged
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.mysql.server import BinlogServer, SendingBinlog
from tidegauge.sources.mysql.servers import ServerKind, connect_state

__all__ = ["start_log"]


def start_log(
    log: SendingBinlog,
    server: BinlogServer,
    kind: ServerKind,
    settings: Mapping[str, str],
    earlier: Frontier,
    frontier: Frontier,
    *,
    known: str = "",
) -> None:
    """Begin to receive the log from an earlier frontier on. frontier: the one that is needed, for people. settings:
    of the server, at present. known: the last transaction before the earlier frontier, if any is. Raises
    `BinlogPurged` where the server does not have the earlier one."""
    if not kind.by_sets:
        needed = ",".join(f"{one}-{next_}" for one, next_ in sorted(frontier.items()))
        begins, ends = server.oldest(), settings["gtid_binlog_pos"]
        found = f"its log begins after {begins} and ends at {ends}" if begins else f"its log ends at {ends}"
        log.start(connect_state(server.shown, earlier, settings["gtid_binlog_state"], known), needed, found)
        return
    needed = " and ".join(f"{one}:{next_}" for one, next_ in sorted(frontier.items()))
    purged = " ".join(settings["gtid_purged"].split())
    found = f"its log begins after {purged or 'nothing'} and ends at {' '.join(settings[kind.position].split())}"
    if not kind.frontier(server.shown, settings["gtid_purged"]).less_equal(earlier):
        raise BinlogPurged(source=server.shown, needed=needed, found=found, said="gtid_purged")
    log.start_after(earlier, needed, found)
