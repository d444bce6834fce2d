"""TG-049x: the upkeep of tables.

>>> print(NotMaintained(output="alerts", kind="kafka"))
TG-0490: the output 'alerts' (kafka) has no table that can be maintained
  likely cause: topics, folders of Parquet and functions have no commit that replaces files unseen
  what to do:   name outputs that are tables of Delta or Iceberg, or none for all that can be maintained
"""

from __future__ import annotations

from tidegauge.errors.base import TidegaugeError

__all__ = ["CannotPack", "NotMaintained"]


class NotMaintained(TidegaugeError):
    """An output that was named for maintenance, and whose sink has none."""

    code = "TG-0490"
    what = "the output {output!r} ({kind}) has no table that can be maintained"
    cause = "topics, folders of Parquet and functions have no commit that replaces files unseen"
    remedy = "name outputs that are tables of Delta or Iceberg, or none for all that can be maintained"


class CannotPack(TidegaugeError):
    """A file of a table whose rows cannot be written again unchanged."""

    code = "TG-0491"
    what = "the file {path!r} of the table {table} was not packed: {detail}"
    cause = "it is damaged, or is gone; or another program has written it with other columns"
    remedy = "the table is unchanged; see `tidegauge verify`, then `tidegauge repair`, and maintain it again"
