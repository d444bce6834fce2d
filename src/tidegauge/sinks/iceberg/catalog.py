"""The catalog that a table of Iceberg is in: pyiceberg's, and its errors as ours.

Without a name it is a database of SQLite in the warehouse itself, which any tool opens as an SQL catalog:

    pyiceberg.catalog.sql.SqlCatalog("default", uri="sqlite:////lake/catalog.db", warehouse="file:///lake")

With one it is what pyiceberg's own configuration says of that name. So whatever lets us in there is in that
configuration, and nowhere else.

Invariant: looking makes neither a database nor a namespace nor a table. What a catalog raises is an error of ours,
and says whether it may pass; whether a commit was made is never concluded from one (`change`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.iceberg import (
    CatalogAway,
    CatalogForbidden,
    CatalogUnknown,
    IcebergMissing,
    IcebergTableDamaged,
    NotAnIcebergTable,
)
from tidegauge.objects.address import is_address
from tidegauge.objects.client import told
from tidegauge.sinks.iceberg.fields import fresh_ids, numbered
from tidegauge.sinks.iceberg.partitions import spec_of
from tidegauge.sinks.iceberg.place import IcebergName, folder_of, uri_of
from tidegauge.sinks.layout.layout import FileLayout
from tidegauge.sinks.location import at, gone, make_folder

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table as PyIcebergTable

__all__ = ["DATABASE", "CatalogPlace", "embedded", "is_conflict", "translated"]

DATABASE: Final = "catalog.db"
_EMBEDDED: Final = "default"
"""Of pyiceberg's own choice, where it is told none."""
_PROPERTIES: Final = {"format-version": "2", "write.metadata.delete-after-commit.enabled": "true"}
"""Of a table that we make. Each commit writes its metadata anew, and of the files before it keeps a hundred."""
_REFUSING: Final = frozenset({"UnauthorizedError", "ForbiddenError", "AuthorizationExpiredError", "OAuthError"})
_CONFLICT: Final = frozenset({"CommitFailedException", "TableAlreadyExistsError"})
_OTHERS: Final = frozenset({"NoSuchIcebergTableError"})
_CLIENTS: Final = frozenset({"pyiceberg", "requests", "urllib3", "sqlalchemy", "sqlite3", "botocore", "thrift"})


@dataclass(frozen=True)
class CatalogPlace:
    """A table in its catalog. catalog: None for the one in the warehouse."""

    name: IcebergName
    warehouse: str
    catalog: str | None = None
    output: str = ""
    _made: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def folder(self) -> str:
        """The folder of the table."""
        return folder_of(self.warehouse, self.name)

    @property
    def shown(self) -> str:
        """The catalog, for people."""
        return self.catalog or f"{self.warehouse}/{DATABASE}"

    def load(self) -> PyIcebergTable | None:
        """Return the present table, None where there is none. Raises errors of ours."""
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        if self.catalog is None and gone(at(self.warehouse) / DATABASE):
            return None
        try:
            with self.asking():
                return self._open().load_table(self.name.parts)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None

    def create(self, columns: pa.Schema, lying: FileLayout) -> None:
        """Make the table, empty, and its namespace, unless they are there. lying: how rows lie in its files."""
        from pyiceberg.io.pyarrow import pyarrow_to_schema

        if self.catalog is None:
            make_folder(at(self.warehouse))
        with self.asking():
            catalog, ids = self._open(), fresh_ids(columns)
            for depth in range(1, len(self.name.parts)):
                catalog.create_namespace_if_not_exists(self.name.parts[:depth])
            catalog.create_table_if_not_exists(
                self.name.parts,
                schema=pyarrow_to_schema(numbered(columns, ids)),
                partition_spec=spec_of(lying, ids, number=0),
                location=uri_of(self.folder),
                properties=_PROPERTIES,
            )

    def drop(self) -> None:
        """Take the table out of its catalog, and leave its files. One that is not there is no error."""
        from pyiceberg.exceptions import NoSuchTableError

        if self.load() is not None:
            try:
                with self.asking():
                    self._open().drop_table(self.name.parts)
            except NoSuchTableError:
                return

    def close(self) -> None:
        """Let go of connections."""
        if (catalog := self._made.pop("catalog", None)) is not None:
            catalog.close()

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Raise errors of ours for those of catalogs, but for those which say that nothing is there."""
        try:
            yield
        except Exception as error:
            ours = translated(error, self)
            if ours is None:
                raise
            raise ours from error

    def _open(self) -> Catalog:
        if "catalog" not in self._made:
            self._made["catalog"] = self._named(self.catalog) if self.catalog else embedded(self.warehouse)
        found: Catalog = self._made["catalog"]
        return found

    def _named(self, catalog: str) -> Catalog:
        from pyiceberg.catalog import load_catalog

        try:
            return load_catalog(catalog, **_durably(self.warehouse))
        except (ValueError, LookupError) as error:
            raise CatalogUnknown(catalog=catalog, table=str(self.name), detail=str(error)) from error
        except Exception as error:
            if type(error).__name__ in ("NotInstalledError", "NoSuchPropertyException"):
                raise CatalogUnknown(catalog=catalog, table=str(self.name), detail=str(error)) from error
            raise


def embedded(warehouse: str) -> Catalog:
    """Return the catalog in a warehouse."""
    from pyiceberg.catalog.sql import SqlCatalog

    where = {"uri": f"sqlite:///{warehouse}/{DATABASE}", "warehouse": uri_of(warehouse)}
    return SqlCatalog(_EMBEDDED, **where, **_durably(warehouse))


def _durably(warehouse: str) -> Mapping[str, str]:
    """Return what makes metadata on a disk durable. A store does so itself."""
    return {} if is_address(warehouse) else {"py-io-impl": "tidegauge.sinks.iceberg.durable.DurableFileIO"}


def is_conflict(error: BaseException) -> bool:
    """Whether a catalog says that somebody else has committed first."""
    return type(error).__name__ in _CONFLICT and type(error).__module__.startswith("pyiceberg")


def translated(error: BaseException, place: CatalogPlace) -> TidegaugeError | None:
    """Return an error of ours for one of a catalog, None for one that is to go through."""
    if isinstance(error, TidegaugeError):
        return None
    name, client = type(error).__name__, type(error).__module__.partition(".")[0]
    about = {"table": str(place.name), "catalog": place.shown, "detail": _brief(error)}
    if name in ("NoSuchTableError", "NoSuchNamespaceError"):
        return None
    if isinstance(error, OSError) and (store := _of_store(error, place)) is not None:
        return store
    if isinstance(error, ModuleNotFoundError):
        return IcebergMissing(table=about["table"], detail=about["detail"])
    if name in _REFUSING:
        return CatalogForbidden(**about)
    if name in _OTHERS:
        return NotAnIcebergTable(**about, output=place.output)
    if isinstance(error, FileNotFoundError) or client in ("pydantic", "pydantic_core", "json"):
        return IcebergTableDamaged(table=about["table"], detail=about["detail"])
    return CatalogAway(**about) if client in _CLIENTS or isinstance(error, OSError) else None


def _of_store(error: OSError, place: CatalogPlace) -> TidegaugeError | None:
    """Return what the store of the warehouse says by Arrow's client; None where the error is not the store's."""
    if not is_address(place.warehouse):
        return None
    if not isinstance(error, FileNotFoundError):
        return told(place.folder, str(error))
    try:
        at(place.folder).exists()  # to that client a bucket that is gone is a file that is
    except TidegaugeError as away:
        return away
    return None


def _brief(error: BaseException) -> str:
    """Return the first lines of what a client says, without statements and their parameters."""
    text = " ".join(str(error).partition("\n[SQL:")[0].split())
    return f"{type(error).__name__}: {text[:300]}"
