"""TG-0466 to TG-0468: tables that are to have a name in a catalog.

>>> print(NoCatalog(output="orders", name="shop.orders", engine="local"))
TG-0466: output 'orders' is to be shop.orders in a catalog, and the engine 'local' has none
  likely cause: the flow was written for Spark, whose session has a catalog
  what to do:   run it with engine="spark", or leave out table= of the sink
"""

from __future__ import annotations

from tidegauge.errors.base import TidegaugeError, Transient

__all__ = ["CatalogNameTaken", "CatalogTrouble", "NoCatalog"]


class NoCatalog(TidegaugeError):
    """A table that is to have a name in a catalog, in a run on an engine without one."""

    code = "TG-0466"
    what = "output {output!r} is to be {name} in a catalog, and the engine {engine!r} has none"
    cause = "the flow was written for Spark, whose session has a catalog"
    remedy = 'run it with engine="spark", or leave out table= of the sink'


class CatalogNameTaken(Transient):
    """A name in a catalog that is another table's."""

    code = "TG-0467"
    what = "{name} is another table in the catalog: it is at {found}, and that of output {output!r} at {location}"
    cause = "somebody has made a table of this name; or the output's table was moved, and its name was left behind"
    remedy = (
        "the output has its rows, and only the name is missing: drop or rename the other table in the catalog, and "
        "the name is tried again; or give the sink another table="
    )


class CatalogTrouble(Transient):
    """A catalog that did not take in a table."""

    code = "TG-0468"
    what = "the catalog has not taken in {name} for output {output!r}: {detail}"
    cause = "the schema of the name is missing; the session lacks Delta's JAR; or the catalog is away or forbids it"
    remedy = (
        "the output has its rows, and only the name is missing: create the schema, or mend the session's settings; "
        "the name is tried again, with growing delays"
    )
