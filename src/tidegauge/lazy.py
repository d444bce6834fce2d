"""Names of a package that load the module they are in when they are first asked for (PEP 562).

A package lists its names twice: as imports, which only type checkers and editors follow, and as a table, which finds
names while the program runs.

    if TYPE_CHECKING:
        from shop.till import Receipt as Receipt
        from shop.till import Till as Till
    else:
        __getattr__, __dir__, __all__ = names(__name__, {"till": "Receipt Till"})

Invariant: both lists agree (`tests/test_imports.py`), and a package none of whose names was used has loaded nothing.

>>> find, listed, public = names("tidegauge", {"env": "Env", "errors.base": "TidegaugeError"})
>>> find("Env"), listed(), find("env").__name__
(<class 'tidegauge.env.Env'>, ['Env', 'TidegaugeError'], 'tidegauge.env')
>>> find("Evn")
Traceback (most recent call last):
    ...
AttributeError: module 'tidegauge' has no attribute 'Evn'
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

__all__ = ["library", "names"]


def names(
    package: str, modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package, given the names in each of its modules as one text.

    The modules of the package themselves are found too, without being imported first.
    """
    homes = {name: f"{package}.{module}" for module, has in modules.items() for name in has.split()}

    def find(name: str) -> Any:
        owner = sys.modules[package]
        if name in homes:
            value = getattr(import_module(homes[name]), name)
            setattr(owner, name, value)  # so that nobody asks here again
            return value
        if name.isidentifier() and not name.startswith("__") and find_spec(f"{package}.{name}") is not None:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=owner)

    return find, lambda: sorted(homes), sorted(homes)


class _Library:
    """Stands for a module: its attributes are the module's, and are kept."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(import_module(self._name), attribute)
        setattr(self, attribute, value)
        return value


def library(name: str) -> Any:
    """Return a module whose names type checkers cannot see anyway, to be loaded when something of it is first used.

    >>> library("math").gcd(12, 18)
    6
    """
    return _Library(name)
