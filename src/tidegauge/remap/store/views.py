"""The timeline for people: views with names in place of numbers, the same on every database.

Invariant: each row comes from the indexes. Asked for one epoch or one partition, a view costs what its answer does,
however much is bound: a row looks for the change before it in `changes_by_partition`. A window function over the
changes would compute all of them first.

Which epoch holds record 1234 of partition p0 of the source orders:

    SELECT min(epoch) FROM bindings
    WHERE flow = 'shop' AND source = 'orders' AND partition = 'p0' AND lower <= 1234 AND position > 1234;
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlalchemy import Connection

__all__ = ["VIEWS", "create"]

VIEWS: Final[Mapping[str, str]] = {
    "epochs": """
        SELECT f.name AS flow, t.epoch AS epoch, t.minted_at AS minted_at, t.published_at AS published_at,
               t.epoch < f.published AS published
        FROM flows f
        JOIN timeline t ON t.flow_id = f.id
    """,
    "bindings": """
        SELECT f.name AS flow, s.name AS source, coalesce(i.number, 0) AS incarnation, c.epoch AS epoch,
               p.key AS partition,
               coalesce((SELECT e.position FROM changes e
                         WHERE e.source_id = c.source_id AND e.partition_id = c.partition_id
                               AND e.epoch < c.epoch AND e.epoch >= coalesce(i.began_at, 0)
                         ORDER BY e.epoch DESC LIMIT 1), 0) AS lower,
               c.position AS position
        FROM flows f
        JOIN sources s ON s.flow_id = f.id
        JOIN partitions p ON p.source_id = s.id
        JOIN changes c ON c.source_id = s.id AND c.partition_id = p.id
        LEFT JOIN incarnations i ON i.source_id = c.source_id AND i.number = (
            SELECT max(n.number) FROM incarnations n WHERE n.source_id = c.source_id AND n.began_at <= c.epoch)
    """,
    "progress": """
        SELECT f.name AS flow, s.name AS source, coalesce(i.number, 0) AS incarnation, p.key AS partition,
               c.position AS position, c.epoch AS epoch,
               coalesce((SELECT e.position FROM changes e
                         WHERE e.source_id = s.id AND e.partition_id = p.id
                               AND e.epoch < f.published AND e.epoch >= coalesce(i.began_at, 0)
                         ORDER BY e.epoch DESC LIMIT 1), 0) AS published_position,
               x.source_id IS NOT NULL AS sealed
        FROM flows f
        JOIN sources s ON s.flow_id = f.id
        JOIN partitions p ON p.source_id = s.id
        LEFT JOIN incarnations i ON i.source_id = s.id AND i.number = (
            SELECT max(n.number) FROM incarnations n WHERE n.source_id = s.id)
        JOIN changes c ON c.source_id = s.id AND c.partition_id = p.id AND c.epoch = (
            SELECT max(e.epoch) FROM changes e
            WHERE e.source_id = s.id AND e.partition_id = p.id AND e.epoch >= coalesce(i.began_at, 0))
        LEFT JOIN seals x ON x.source_id = s.id
    """,
    "gaps": """
        SELECT f.name AS flow, s.name AS source, l.epoch AS epoch, l.partition AS partition, l.lower AS lower,
               l.upper AS upper, l.at AS at, l.code AS code, l.reason AS reason
        FROM flows f
        JOIN sources s ON s.flow_id = f.id
        JOIN losses l ON l.source_id = s.id
    """,
}
"""The views by name, each as what it selects. docs/reference/store.md says what their columns mean."""


def create(connection: Connection) -> None:
    """Make the views."""
    for name, query in VIEWS.items():
        connection.exec_driver_sql(f"CREATE VIEW {name} AS {query.strip()}")
