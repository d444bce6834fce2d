"""The options of `format("tidegauge")`, checked before anything is opened.

Spark knows no upper case in the names of options, and hands all values over as texts.

Invariant: no option holds a secret. They are kept in plans, and sent to workers; so a store's address with a password
in it is refused, and is given as `env:NAME` or `file:PATH` instead, which is resolved where it is used.

>>> options = Options.of({"store": "sqlite:///shop.db", "flow": "shop", "output": "orders", "startingoffsets": "7"})
>>> options.starting, options.epochs, options.changes
(7, None, False)
>>> Options.of({"store": "postgresql://ada:hunter2@db/shop", "flow": "shop", "output": "orders"})
Traceback (most recent call last):
tidegauge.errors.secrets.SecretInClear: TG-0801: the setting 'store' is a secret, and was given in the clear
...
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.readers import OptionMisplaced, OptionMissing, UnknownOption
from tidegauge.errors.secrets import SecretInClear
from tidegauge.looking.asof import AsOf, checked, instant
from tidegauge.remap.store import reveals
from tidegauge.secrets import is_reference, resolve

__all__ = ["Options", "StartingOffsets"]

StartingOffsets: TypeAlias = Literal["earliest", "latest"] | int

_NAMED: Final = ("store", "flow", "output")
_BATCH: Final = ("asOf",)
_STREAM: Final = ("startingOffsets", "maxEpochsPerTrigger", "changes")
_KNOWN: Final = {name.lower(): name for name in (*_NAMED, *_BATCH, *_STREAM)}


@dataclass(frozen=True, slots=True)
class Options:
    """An output, by its names, and how it is read.

    as_of: for a table, as `tg.read` takes it. starting: where a new query begins: "earliest", "latest", or an epoch.
    epochs: how many a batch has at most, None for all that are there. changes: whether rows have `_diff`. given: the
    names of those that were given.
    """

    store: str
    flow: str
    output: str
    as_of: AsOf = None
    starting: StartingOffsets = "earliest"
    epochs: int | None = None
    changes: bool = False
    given: frozenset[str] = frozenset()

    @staticmethod
    def of(texts: Mapping[str, str]) -> Options:
        """Return the options that Spark hands over. Raises what says that one is missing, unknown, or wrong."""
        found: dict[str, str] = {}
        for name, text in texts.items():
            known = _KNOWN.get(name.lower())
            if known is None:
                raise UnknownOption(option=name, known=list(_KNOWN.values()))
            found[known] = str(text)
        for name in _NAMED:
            if not found.get(name):
                raise OptionMissing(option=name)
        if not is_reference(found["store"]) and reveals(found["store"]):
            raise SecretInClear(setting="store")
        return Options(
            found["store"],
            found["flow"],
            found["output"],
            _as_of(found.get("asOf")),
            _starting(found.get("startingOffsets", "earliest")),
            _count(found.get("maxEpochsPerTrigger")),
            _truth(found.get("changes", "false")),
            frozenset(found),
        )

    @property
    def address(self) -> str:
        """The address of the store. Raises `SecretUnavailable`."""
        return resolve("store", self.store)

    def check_batch(self) -> None:
        """Raise `OptionMisplaced` for an option of streams."""
        self._check("spark.read", _STREAM)

    def check_stream(self) -> None:
        """Raise `OptionMisplaced` for an option of tables."""
        self._check("spark.readStream", _BATCH)

    def _check(self, reader: str, others: tuple[str, ...]) -> None:
        for name in others:
            if name in self.given:
                raise OptionMisplaced(option=name, reader=reader)


def _as_of(text: str | None) -> AsOf:
    if text is None:
        return None
    if text.isascii() and text.isdigit():
        return int(text)
    if not text.lstrip().startswith("{"):
        instant(text)  # raises for what names no time
        return text
    try:
        positions: Any = json.loads(text)
    except ValueError:
        positions = text
    return checked(positions, parameter="asOf")


def _starting(text: str) -> StartingOffsets:
    if text in ("earliest", "latest"):
        return text  # type: ignore[return-value]
    if text.isascii() and text.isdigit():
        return int(text)
    raise InvalidArgument(parameter="startingOffsets", value=text, expected='"earliest", "latest" or an epoch')


def _count(text: str | None) -> int | None:
    if text is None:
        return None
    if text.isascii() and text.isdigit() and 0 < int(text) < 1 << 31:
        return int(text)
    raise InvalidArgument(parameter="maxEpochsPerTrigger", value=text, expected="a number from 1 on")


def _truth(text: str) -> bool:
    if (said := text.lower()) in ("true", "false"):
        return said == "true"
    raise InvalidArgument(parameter="changes", value=text, expected='"true" or "false"')
