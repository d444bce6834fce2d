"""Several sources as one: see `source`."""

from typing import TYPE_CHECKING

from tidegauge.lazy import names

if TYPE_CHECKING:
    from tidegauge.sources.union.source import UnionInput as UnionInput
    from tidegauge.sources.union.source import UnionSource as UnionSource
    from tidegauge.sources.union.source import UnionSplit as UnionSplit
else:
    __getattr__, __dir__, __all__ = names(__name__, {"source": "UnionInput UnionSource UnionSplit"})
