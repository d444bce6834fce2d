"""Engines: where the rows flow."""

from typing import TYPE_CHECKING

from tidegauge.lazy import names

if TYPE_CHECKING:
    from tidegauge.engine.local import LocalEngine as LocalEngine
    from tidegauge.engine.sail.engine import SailEngine as SailEngine
    from tidegauge.engine.spark.engine import SparkEngine as SparkEngine
else:
    __getattr__, __dir__, __all__ = names(
        __name__,
        {
            "local": "LocalEngine",
            "sail.engine": "SailEngine",
            "spark.engine": "SparkEngine",
        },
    )
