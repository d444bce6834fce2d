"""TG-053x and TG-054x: tables of Iceberg, and their catalogs.

>>> print(CatalogAway(table="shop.orders", catalog="lake", detail="connection refused"))
TG-0533: the catalog 'lake' of the table shop.orders does not answer as it should: connection refused
  likely cause: it is down or restarting, its address is wrong, or the disk or store of the warehouse is away
  what to do:   bring it back, or correct the address; the flow tries again by itself, other outputs go on
"""

from __future__ import annotations

from tidegauge.errors.base import Definite, TidegaugeError, Transient

__all__ = [
    "CatalogAway",
    "CatalogForbidden",
    "CatalogUnknown",
    "FilesPartedOtherwise",
    "IcebergColumnReserved",
    "IcebergColumnsAltered",
    "IcebergMissing",
    "IcebergRowsDeleted",
    "IcebergTableChanged",
    "IcebergTableDamaged",
    "IcebergTableElsewhere",
    "IcebergTableUnfit",
    "NotAnIcebergTable",
    "PublishedTagTaken",
    "WarehouseUnknown",
]


class IcebergMissing(TidegaugeError):
    """The library for tables of Iceberg is not there."""

    code = "TG-0530"
    what = "the table {table} needs pyiceberg, which cannot be loaded: {detail}"
    cause = "the extra [iceberg] was not asked for; it is needed where the driver runs, not where tasks do"
    remedy = "pip install 'tidegauge[iceberg]'"


class CatalogUnknown(TidegaugeError):
    """A catalog that the configuration of pyiceberg does not have, or cannot make."""

    code = "TG-0531"
    what = "the catalog {catalog!r} of the table {table} cannot be made: {detail}"
    cause = "pyiceberg's own configuration has no catalog of this name, or what it says of it is incomplete"
    remedy = (
        "describe it in ~/.pyiceberg.yaml, or in variables PYICEBERG_CATALOG__NAME__..., where the driver runs; "
        "without catalog= the table is in a catalog in the warehouse itself"
    )


class WarehouseUnknown(TidegaugeError):
    """A table without a place."""

    code = "TG-0532"
    what = "nothing says where the files of the table {table} go: {detail}"
    cause = "tasks write the files, so they need the place as a folder or an address, which not every catalog tells"
    remedy = "give the sink the folder or address of the warehouse: IcebergSink(..., warehouse='s3://bucket/lake')"


class CatalogAway(Transient):
    """A catalog, or the files of a table's metadata, that cannot be reached at present."""

    code = "TG-0533"
    patient = True
    what = "the catalog {catalog!r} of the table {table} does not answer as it should: {detail}"
    cause = "it is down or restarting, its address is wrong, or the disk or store of the warehouse is away"
    remedy = "bring it back, or correct the address; the flow tries again by itself, other outputs go on"


class CatalogForbidden(Transient):
    """A catalog that lets us in no more, or not as far."""

    code = "TG-0534"
    patient = True
    what = "the catalog {catalog!r} of the table {table} refuses access: {detail}"
    cause = "its credentials are missing or expired, or they do not allow this"
    remedy = (
        "renew the credentials in pyiceberg's configuration, or grant their user the table and its namespace; "
        "the flow tries again by itself, with what it read of them when it opened the table, so restart it if they "
        "were given to it anew"
    )


class IcebergTableElsewhere(Definite):
    """A table whose files are not where the sink writes."""

    code = "TG-0535"
    what = "the table {table} of {output!r} is at {found}, and the sink writes its files to {folder}"
    cause = "the table was created somewhere else, or warehouse= was changed since"
    remedy = "give warehouse= so that the table's folder is in it, as WAREHOUSE/NAMESPACE/NAME; or use another name"


class IcebergTableUnfit(Definite):
    """A table with something that commits of files cannot honour."""

    code = "TG-0536"
    what = "the table {table} has {feature}, which commits from Tidegauge cannot honour"
    cause = "it was created, or altered, by another program"
    remedy = "undo that, or write to another table and copy from there"


class IcebergTableChanged(Definite):
    """A table that others have written to, so that it no longer matches its commits."""

    code = "TG-0537"
    what = "the table {table} is not what {output!r} has written up to epoch {upper} (exclusive): {detail}"
    cause = "another program appended, updated or replaced rows, or rolled the table back"
    remedy = (
        "set the table to the snapshot {snapshot}, the last of the output: CALL "
        "system.set_current_snapshot('{table}', {snapshot}) in Spark. If that has expired, drop the table, and say "
        "so with tidegauge repair FLOW OUTPUT --from 0: the next run writes it again, as far as upstream still has "
        "its records. Nothing is read or written here until then"
    )


class IcebergRowsDeleted(TidegaugeError):
    """A table with delete files, whose data files alone do not show its rows."""

    code = "TG-0538"
    what = "the table {table} has {count} delete files, so its data files hold rows that were deleted"
    cause = "another program deleted rows with write.delete.mode=merge-on-read"
    remedy = (
        "CALL system.rewrite_data_files(table => '{table}', options => map('delete-file-threshold', '1')) in Spark, "
        "and remove_dangling_deletes; or read it with pyiceberg or Spark. Commits go on meanwhile"
    )


class NotAnIcebergTable(Definite):
    """A name that is taken by something else."""

    code = "TG-0539"
    what = "{table} of {output!r} is in the catalog {catalog!r}, but it is no table of Iceberg: {detail}"
    cause = "a table of another format, or a view, has this name"
    remedy = "choose another name for this output's table"


class IcebergTableDamaged(Transient):
    """A table whose metadata cannot be read."""

    code = "TG-0540"
    patient = True
    what = "the metadata of the table {table} cannot be read: {detail}"
    cause = "a file of its folder `metadata` was removed or damaged, or the disk or store of the warehouse is away"
    remedy = "bring the file back, or drop the table from its catalog; the flow tries again by itself"


class IcebergColumnReserved(TidegaugeError):
    """A column whose name Iceberg keeps for what its readers say of a row."""

    code = "TG-0541"
    what = "a table of Iceberg cannot have the column {column!r}: Iceberg keeps the name for itself"
    cause = "metadata=True brings a column _partition; Spark refuses tables with a column of such a name"
    remedy = (
        'rename it, with select("_partition AS part") for example, or leave it out; for upserts rename _offset too, '
        "and give that as order="
    )


class PublishedTagTaken(TidegaugeError):
    """A tag or a branch of others that has the name of ours."""

    code = "TG-0542"
    what = "the table {table} has a {kind} named {tag!r} that is not the flow's"
    cause = (
        "somebody made it for a purpose of their own; rows are committed and published as ever, but no tag tells "
        "which snapshot is published"
    )
    remedy = "rename it, or remove it: the next run then makes the tag; or leave it, if you need no tag"


class IcebergColumnsAltered(Definite):
    """A table whose columns others have renamed or dropped, so that files from before have them under other names."""

    code = "TG-0543"
    what = (
        "the table {table} of {output!r} has other columns than its last commit left: {detail}. The table has "
        "({held}); the rows have ({given})"
    )
    cause = "another program renamed or dropped a column with ALTER TABLE"
    remedy = (
        "give a column that was renamed its name back: ALTER TABLE ... RENAME COLUMN; leave one that was dropped out "
        "of the rows, with a select() and schema='evolve'; or have the table made again with the columns of the "
        "rows: 'tidegauge outputs replace'. Nothing was written, and other outputs go on"
    )


class FilesPartedOtherwise(Definite):
    """A table by key with files of other partitions than the present ones: nobody knows where their rows are."""

    code = "TG-0544"
    what = (
        "the table {table} of {output!r} has files that are not in the present partitions: {path} is parted by "
        "{held}, and the table by {wanted}"
    )
    cause = "another program gave the table other partitions, wrote files with them, and set the partitions back"
    remedy = (
        "have all files written anew with the present partitions, in Spark: CALL system.rewrite_data_files(table => "
        "'{table}', options => map('rewrite-all', 'true')); or have the table made again: 'tidegauge outputs "
        "replace'. Nothing was written, and other outputs go on"
    )
