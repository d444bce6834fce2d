"""The catalog of a Spark session: Spark's own, Hive's, or whatever the session is configured with.

Invariant: it makes names for tables that are there, and changes no table and no other name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tidegauge.engine.spark.errors import quiet, root_message
from tidegauge.errors.catalog import CatalogNameTaken, CatalogTrouble
from tidegauge.sinks.cataloguing import CatalogEntry, quoted, same_place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SparkCatalog"]

_MISSING: Final = ("TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND", "DELTA_TABLE_NOT_FOUND")


class SparkCatalog:
    """The catalog of a session."""

    def __init__(self, session: SparkSession) -> None:
        self._session: Final = session

    def take_in(self, entry: CatalogEntry) -> None:
        """Make a Delta table known by its name. Raises `CatalogNameTaken`, `CatalogTrouble`."""
        try:
            with quiet():
                found = self._location(entry.name)
                if found is None:
                    # A statement that defines a table takes no parameters. A location has no quote in it: `place`.
                    self._session.sql(f"CREATE TABLE {quoted(entry.name)} USING delta LOCATION '{entry.location}'")
                    return
        except Exception as error:  # of Spark, of a catalog's own classes, and of a JVM that is gone
            detail = root_message(error)
            raise CatalogTrouble(output=entry.output, name=entry.name, detail=detail) from error
        if not same_place(found, entry.location):
            raise CatalogNameTaken(output=entry.output, name=entry.name, found=found, location=entry.location)

    def _location(self, name: str) -> str | None:
        """Return where the table of a name is, "" where nobody says; None where the name is free."""
        from pyspark.errors import AnalysisException

        try:
            rows: list[Any] = self._session.sql(f"DESCRIBE TABLE EXTENDED {quoted(name)}").collect()
        except AnalysisException as error:
            if str(error.getCondition()).split(".")[0] in _MISSING:
                return None
            raise
        return next((str(row[1]) for row in rows if row[0] == "Location"), "")
