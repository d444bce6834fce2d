"""Many sources, one durable timeline of epochs, many Spark tables that agree, exactly once.

A flow binds the clocks of its sources (file positions, offsets, row numbers) to one count of epochs, durably, and
writes every epoch to every output exactly once.

>>> import tidegauge as tg
>>> flow = tg.Dataflow("shop", store="sqlite:///shop.db")
>>> clicks = flow.source("clicks", tg.FileSource("landing/*.jsonl", format=tg.Json("user string, page string")))
>>> flow.sink("clicks", clicks, tg.DeltaSink("lake/clicks"))

`flow.run()` runs it; `tg.read` and `tg.read_arrow` give its tables back, all at one epoch.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidegauge.api import *  # noqa: F403


def __getattr__(name: str) -> Any:
    """Return a part of the package, or a public name; all of these are loaded with the first."""
    if find_spec(f"{__name__}.{name}") is not None:
        return import_module(f"{__name__}.{name}")
    public = vars(import_module(f"{__name__}.api"))
    if name not in public:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    return globals().setdefault(name, public[name])


def __dir__() -> list[str]:
    """Return the public names."""
    return import_module(f"{__name__}.api").__all__  # type: ignore[no-any-return]
