"""What the commands have in common: their arguments, how they print, and how errors leave the program.

Invariant: every command ends with an exit code that means the same everywhere, and with an error's code and remedy in
sight.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType
from rich.text import Text

from tidegauge.cli import show
from tidegauge.errors.base import TidegaugeError, Unexpected, brief

__all__ = [
    "AsJson",
    "Debug",
    "EngineName",
    "SparkUrl",
    "Target",
    "at_once",
    "check_engine",
    "errors_said",
    "print_json",
    "print_view",
]

STOPPED_AT_ONCE = "Stopped at once. Nothing is lost or doubled: the next run goes on from what is published."

Target = Annotated[
    str, typer.Argument(metavar="FLOW", help="The file that makes the flow: shop.py, or shop.py:flow.")
]
EngineName = Annotated[str, typer.Option("--engine", help="'spark'; 'local' without Spark; or 'sail' without Java.")]
SparkUrl = Annotated[
    str | None,
    typer.Option("--spark", metavar="URL", help="A Spark master or sc:// address. [default: local\\[*]]"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


@contextmanager
def errors_said(*, debug: bool, as_json: bool = False) -> Iterator[None]:
    """Turn an error into its text and the exit code 1."""
    try:
        yield
    except (typer.Exit, typer.Abort):
        raise
    except Exception as raised:
        if debug:
            raise
        error = raised if isinstance(raised, TidegaugeError) else Unexpected(message=brief(raised))
        if as_json:
            print(json.dumps({"error": show.error_json(error)}))
        Console(stderr=True).print(show.error_text(error), soft_wrap=True)
        raise typer.Exit(1) from None


@contextmanager
def at_once() -> Iterator[None]:
    """End the process on the second Ctrl-C: its threads are not waited for, as what they do is not durable."""
    try:
        yield
    except KeyboardInterrupt:
        Console(stderr=True).print(Text(STOPPED_AT_ONCE), soft_wrap=True)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)


def check_engine(engine: str, spark: str | None) -> None:
    """Refuse an engine that is none, and a Spark without it."""
    if engine not in ("spark", "local", "sail"):
        raise typer.BadParameter(f"{engine!r} is none of 'spark', 'local' and 'sail'", param_hint="--engine")
    if spark is not None and engine != "spark":
        raise typer.BadParameter("goes with --engine spark", param_hint="--spark")


def print_json(value: Any) -> None:
    """Print for programs."""
    print(json.dumps(value, indent=2))


def print_view(view: RenderableType) -> None:
    """Print for people; for a pipe or a file in lines of any length."""
    Console(width=None if sys.stdout.isatty() else 1000).print(view)
