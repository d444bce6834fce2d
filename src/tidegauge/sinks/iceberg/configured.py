"""Where a catalog's warehouse is, by pyiceberg's own configuration: read where a sink is declared, in the driver.

Invariant: of the configuration nothing but that address is taken; secrets in it stay there.
"""

from __future__ import annotations

import re
from typing import Final

from tidegauge.errors.iceberg import IcebergMissing, WarehouseUnknown
from tidegauge.objects.address import is_address

__all__ = ["configured_warehouse"]

_PLACE: Final = re.compile(r"/|file:/")


def configured_warehouse(catalog: str | None, *, table: str) -> str:
    """Return the folder or address of a catalog's warehouse. Raises `WarehouseUnknown`, `IcebergMissing`."""
    if catalog is None:
        raise WarehouseUnknown(table=table, detail="neither warehouse= nor catalog= was given")
    try:
        from pyiceberg.utils.config import Config
    except ImportError as error:
        raise IcebergMissing(table=table, detail=str(error)) from error
    told = (Config().get_catalog_config(catalog) or {}).get("warehouse")
    if not isinstance(told, str) or not (_PLACE.match(told) or is_address(told)):
        detail = f"pyiceberg's configuration of the catalog {catalog!r} has no folder or address as its warehouse"
        raise WarehouseUnknown(table=table, detail=detail)
    return told
