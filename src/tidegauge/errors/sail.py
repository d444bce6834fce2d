"""TG-0690 and on: the engine that runs SQL on Sail, without Java.

>>> print(SailMissing(detail="No module named 'pysail'"))
TG-0690: engine='sail' needs pysail and the client of Spark Connect, which cannot be loaded: No module named 'pysail'
  likely cause: Sail is an extra of Tidegauge, and is not installed where this program runs
  what to do:   pip install 'tidegauge[sail]'
"""

from __future__ import annotations

from tidegauge.errors.base import TidegaugeError

__all__ = ["NotOnSail", "NotSpark", "SailBesideSpark", "SailMissing"]


class SailMissing(TidegaugeError):
    """Sail, or what a client of Spark Connect needs, is not installed."""

    code = "TG-0690"
    what = "engine='sail' needs pysail and the client of Spark Connect, which cannot be loaded: {detail}"
    cause = "Sail is an extra of Tidegauge, and is not installed where this program runs"
    remedy = "pip install 'tidegauge[sail]'"


class NotOnSail(TidegaugeError):
    """A step whose rows may be others on Sail than on Spark."""

    code = "TG-0691"
    what = "output {output!r} has the step {step}, which Sail is not given: {what}"
    cause = (
        "Sail computes some of SQL otherwise than Spark, such as integers that wrap around where Spark raises, so it "
        "is given the measured part and nothing else"
    )
    remedy = (
        "write the step from the list in docs/how-to/run-without-java-on-sail.md, as steps of plain SQL, or as "
        "map_batches; or run with the Spark engine"
    )


class SailBesideSpark(TidegaugeError):
    """Sail beside a Spark session with a JVM."""

    code = "TG-0692"
    what = "engine='sail' cannot run beside the Spark session with a JVM in this process"
    cause = "PySpark has its functions either for a JVM or for Spark Connect in one process, not for both"
    remedy = "stop that session first (spark.stop()), run the flow in a process of its own, or run it on that session"


class NotSpark(TidegaugeError):
    """A Spark Connect server that is not Spark."""

    code = "TG-0693"
    what = "the Spark Connect server says that its version is {version}, and Spark has none such"
    cause = "the address is that of a Sail server, which computes some of SQL otherwise than Spark and keeps no rows"
    remedy = "run on a server of Spark's; or with engine='sail' (--engine sail), which starts Sail by itself"
