"""Engines: where the rows flow."""

from tidegauge.pipeline.engine.local import LocalEngine
from tidegauge.pipeline.engine.spark import SparkEngine

__all__ = ["LocalEngine", "SparkEngine"]
