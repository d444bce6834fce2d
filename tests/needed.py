"""What some tests need and not every Python has: there, their modules are skipped and say so.

bytewax has no wheels for Python 3.13 and later. A module needs it that imports it at its top, or in its doctest, or
what does so among our own.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

__all__ = ["NO_BYTEWAX", "needs_bytewax"]

NO_BYTEWAX: Final = "bytewax needs Python 3.11 or 3.12" if find_spec("bytewax") is None else ""
"""Why there is no bytewax; empty where there is."""

_IMPORTS: Final = re.compile(r"^(?:>>> )?(?:from|import) (?:tidegauge\.|tests\.(?:\w+\.)*)?bytewax\b", re.MULTILINE)


def needs_bytewax(text: str) -> bool:
    """Whether a module of this text needs bytewax.

    >>> needs_bytewax("import os\\nfrom bytewax.inputs import DynamicSource"), needs_bytewax("import tidegauge")
    (True, False)
    """
    return _IMPORTS.search(text) is not None


@pytest.hookimpl(tryfirst=True)
def pytest_make_collect_report(collector: pytest.Collector) -> pytest.CollectReport | None:
    """Skip a module that needs what is not here, before it is imported."""
    path = collector.path
    if not NO_BYTEWAX or not isinstance(collector, pytest.File) or path.suffix != ".py":
        return None
    if not needs_bytewax(Path(path).read_text()):
        return None
    return pytest.CollectReport(collector.nodeid, "skipped", (str(path), 0, f"Skipped: {NO_BYTEWAX}"), [])
