"""The session that jobs run on: all that the user's session has, and nothing of its settings that decides rows.

Many settings of a session change the meaning of SQL: its time zone, ANSI mode, upper and lower case, how dates are
parsed, the types of decimals. Rows are a function of the flow alone (law 1), so jobs run on a *copy* of the session,
which has its views, functions, catalogs and cached tables, and in which such settings have Spark's defaults, whatever
the session says. The session itself is left alone.

Which settings decide rows is not listed, because a list that lacks one gives wrong rows. Listed are those that say
where things are and how a plan is run; they stay. Every other setting of Spark's SQL goes.

>>> changes({"spark.sql.shuffle.partitions": "8", "spark.sql.caseSensitive": "true", "spark.sql.catalog.x": "X"})
{'spark.sql.caseSensitive': None, 'spark.sql.session.timeZone': 'UTC', 'spark.sql.ansi.enabled': 'true'}
>>> changes({"spark.sql.session.timeZone": "UTC", "spark.sql.ansi.enabled": "true", "spark.ui.enabled": "true"})
{}
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from tidegauge.engine.spark.session import is_connect
from tidegauge.errors.engine import SessionDecidesRows
from tidegauge.errors.sail import NotSpark

__all__ = ["Jobs", "changes", "jobs_of"]

_OURS: Final = {"spark.sql.session.timeZone": "UTC", "spark.sql.ansi.enabled": "true"}
"""Whose default is the machine's: its zone, and a variable of its environment."""

_COMPILED: Final = {"spark.sql.codegen.hugeMethodLimit": "8000"}
"""Decides no row. HotSpot never compiles a longer method, and the one that Spark makes of the projection for ten
outputs is longer: it then takes up to three times as long. Spark's own limit is the longest that Java allows."""

_KEPT: Final = tuple(
    f"spark.sql.{name}"
    for name in (
        "adaptive.",
        "artifact.",
        "autoBroadcastJoinThreshold",
        "bitmap",
        "broadcast",
        "cache",
        "cartesianProductExec.",
        "catalog.",
        "catalogImplementation",
        "cbo.",
        "classic.",
        "codegen.",
        "columnVector.",
        "connect.",
        "dataFrameQueryContext.",
        "debug.",
        "defaultCacheStorageLevel",
        "defaultCatalog",
        "event.",
        "exchange.",
        "execution.arrow.compression.",
        "execution.arrow.localRelationThreshold",
        "execution.arrow.max",
        "execution.pyspark.udf.",
        "execution.pyspark.python",
        "execution.python.udf.",
        "execution.sortBeforeRepartition",
        "extensions",
        "files.max",
        "files.min",
        "files.openCostInBytes",
        "hive.",
        "inMemoryColumnarStorage.",
        "inMemoryTableScanStatistics.",
        "join.",
        "leafNodeDefaultParallelism",
        "maven.",
        "maxBroadcastTableSize",
        "maxMetadataStringLength",
        "maxPlanStringLength",
        "maxSinglePartitionBytes",
        "objectHashAggregate.",
        "optimizer.",
        "planChangeLog.",
        "pyspark.jvmStacktrace.",
        "queryExecutionListeners",
        "redaction.",
        "repl.",
        "session.localRelation",
        "shuffle.",
        "sort.",
        "sortMergeJoinExec.",
        "sources.bucketing.",
        "sources.parallelPartitionDiscovery.",
        "sources.v2.bucketing.",
        "statistics.",
        "streaming.",
        "subquery.",
        "thriftServer.",
        "thriftserver.",
        "ui.",
        "warehouse.",
        "windowExec.",
    )
)


def changes(settings: Mapping[str, str]) -> dict[str, str | None]:
    """Return the settings to change in a session with these settings, None standing for Spark's default."""
    foreign = [
        name
        for name in sorted(settings)
        if name.startswith("spark.sql.") and name not in _OURS and not name.startswith(_KEPT)
    ]
    return dict.fromkeys(foreign) | {name: value for name, value in _OURS.items() if settings.get(name) != value}


def server_version(session: Any) -> str:
    """Return the version that a Connect server says of itself. Its session says that of Spark in any case."""
    return str(session.range(1).selectExpr("version()").toArrow().column(0)[0].as_py())


def check_spark(version: str) -> None:
    """Raise `NotSpark` for the version of a server that is none of Spark's: Sail counts its own.

    >>> check_spark("4.2.0 fa33ea000a0bda9e5a3fa1af98e8e85b8cc5e4d4")
    >>> check_spark("0.7.2")
    Traceback (most recent call last):
    tidegauge.errors.sail.NotSpark: TG-0693: the Spark Connect server says that its version is 0.7.2, ...
    """
    if version.startswith("0."):
        raise NotSpark(version=version)


@dataclass(frozen=True, slots=True)
class Jobs:
    """A session for jobs. given: the original session, of which it is a copy unless nothing had to be changed."""

    session: Any
    given: Any

    @property
    def copied(self) -> bool:
        """Whether it is a copy."""
        return self.session is not self.given

    @property
    def pinned(self) -> bool:
        """Whether the jobs of a thread have properties of their own: on a classic session, unless somebody has set
        `PYSPARK_PIN_THREAD` to false."""
        from py4j.clientserver import ClientServer  # type: ignore[import-untyped]

        return not is_connect(self.session) and isinstance(self.session.sparkContext._gateway, ClientServer)  # noqa: SLF001

    def check(self) -> None:
        """Raise `SessionDecidesRows` when somebody has changed what decides rows, which only the user can have."""
        if not self.copied and (found := _differences(self.session)):
            raise SessionDecidesRows(settings=sorted(found), why="they were set while a flow ran on it")

    def close(self) -> None:
        """Let go of a copy that a Connect server keeps. One on this machine goes when nobody has it any more."""
        if self.copied and is_connect(self.session):
            with suppress(Exception):  # the server may be gone
                self.session.client.release_session()
            with suppress(Exception):
                self.session.client.close()


def jobs_of(session: Any, *, spark: bool = True) -> Jobs:
    """Return the session that jobs run on. spark: whether its server has to be Spark.

    On Connect a session is used directly if nothing has to change, because a DataFrame of one session cannot be
    joined to one of another there. Raises `SessionDecidesRows` if something has to, and the server cannot copy a
    session, and `NotSpark`.
    """
    if not is_connect(session):
        return Jobs(_changed(_copied_here(session)), session)
    if spark:
        check_spark(server_version(session))
    differences = _differences(session)
    if not differences:
        return Jobs(session, session)
    try:
        copy = session.cloneSession()
    except Exception as error:  # there is none in Spark 4.0, nor in servers that are not Spark
        why = "its server cannot copy a session (Spark 4.1 and newer can)"
        raise SessionDecidesRows(settings=sorted(differences), why=why) from error
    return Jobs(_changed(copy), session)


def _copied_here(session: Any) -> Any:
    """Return a copy of a classic session. PySpark has no name for what the JVM's session can do."""
    from pyspark.sql import SparkSession

    return SparkSession(session.sparkContext, session._jsparkSession.cloneSession())  # noqa: SLF001


def _changed(session: Any) -> Any:
    """Change what decides rows in a copy, and, unless the user has set it, how long a compiled method may be."""
    unset = {name: value for name, value in _COMPILED.items() if name not in session.conf.getAll}
    for name, value in (_differences(session) | unset).items():
        if value is None:
            session.conf.unset(name)
        else:
            session.conf.set(name, value)
    return session


def _differences(session: Any) -> dict[str, str | None]:
    """Return the settings to change in a session. Settings that Spark does not know, or does not let change, are
    left."""
    wanted = changes(session.conf.getAll)
    return {name: value for name, value in wanted.items() if value is not None or session.conf.isModifiable(name)}
