"""TG-0431 to TG-0434, TG-0443 to TG-0447, TG-0469: how a table's rows lie in its files.

>>> print(TooManyPartitions(table="lake/orders", epoch=7, found=4097, most=4096, partition="id"))
TG-0433: a task has rows of 4097 partitions in epoch 7 of lake/orders, parted by id; 4096 is the most
  likely cause: a partition column with a value for nearly every row, such as a key or an instant
  what to do:   part the rows by tg.bucket(...), tg.day(...) or a coarser column, and let tidegauge outputs replace \
make the table again
"""

from __future__ import annotations

from tidegauge.errors.base import Definite, TidegaugeError

__all__ = [
    "LaidOutByKey",
    "PartitionColumnUnfit",
    "PartitionValueUnfit",
    "PartitionedOtherwise",
    "PartitionsTooSmall",
    "SortColumnUnfit",
    "TooManyPartitions",
]


class PartitionedOtherwise(Definite):
    """A table that is parted by other columns than its output wants."""

    code = "TG-0431"
    what = "the table {table} is parted by {held}, and the output {output} wants it parted by {wanted}"
    cause = "partition_by= of its sink was changed since the table was written, or others have parted it anew"
    remedy = (
        "give the sink the partition_by that the table was written with; or decide that the table is made again "
        "with the new one: tidegauge outputs replace"
    )


class PartitionColumnUnfit(TidegaugeError):
    """A column, or a transform of one, that a table cannot be parted by."""

    code = "TG-0432"
    what = "a table cannot be parted by {partition}: {problem}"
    cause = "the columns of the stream are {known}"
    remedy = "part it by another column, by tg.day, tg.month, tg.hour or tg.bucket of one, or make one with select"


class TooManyPartitions(Definite):
    """Rows of more partitions than a task writes in an epoch."""

    code = "TG-0433"
    what = (
        "a task has rows of {found} partitions in epoch {epoch} of {table}, parted by {partition}; {most} is the most"
    )
    cause = "a partition column with a value for nearly every row, such as a key or an instant"
    remedy = (
        "part the rows by tg.bucket(...), tg.day(...) or a coarser column, and let tidegauge outputs replace make "
        "the table again"
    )


class PartitionsTooSmall(Definite):
    """A table that has come to have many partitions with hardly any rows."""

    code = "TG-0469"
    what = (
        "the table {table} of {output}, parted by {partition}, would have {found} partitions with {rows} rows "
        "altogether; with more than {most} partitions it is to have {least} rows in each, on average"
    )
    cause = "a partition column that gets new values with every epoch, such as a key or an instant"
    remedy = (
        "part the rows by tg.bucket(...), tg.day(...) or a coarser column, and let tidegauge outputs replace make "
        "the table again"
    )


class PartitionValueUnfit(Definite):
    """A value that cannot be that of a partition."""

    code = "TG-0434"
    what = (
        "a row of epoch {epoch} of {table} has the value {value!r} in the partition column {column!r}: "
        "it is {problem}"
    )
    cause = "a table's log has partition values as text, and readers take some texts for others"
    remedy = (
        "make the column one that has no such values, with select(\"nullif(country, '') AS country\") for example; "
        "or part the rows by tg.bucket(...) of it"
    )


class SortColumnUnfit(TidegaugeError):
    """A column that rows cannot be sorted by."""

    code = "TG-0443"
    what = "rows cannot be sorted by {column!r}: {problem}"
    cause = "the columns of the stream are {known}"
    remedy = "name another column in sort_by="


class LaidOutByKey(TidegaugeError):
    """A layout for a table by key, which has its own."""

    code = "TG-0444"
    what = "{sink}({parameter}) cannot be given together with envelope='upsert'"
    cause = (
        "a table by key has its rows sorted by key, in files of disjoint ranges, so that a change finds the row it "
        "replaces"
    )
    remedy = "leave it out, or make the column the first one of the key; a table by key takes partition_by"
