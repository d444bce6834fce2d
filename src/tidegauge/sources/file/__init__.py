"""Files that grow, are rotated, or appear whole, read by byte range."""

from tidegauge.sources.file.reading import FileSplit
from tidegauge.sources.file.source import FileSource

__all__ = ["FileSource", "FileSplit"]
