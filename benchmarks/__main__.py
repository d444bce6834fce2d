"""`python -m benchmarks [NAME ...] [--quick]`: run benchmarks, print their table, keep it as JSON.

`--help` lists them. Each runs in a process of its own. Results go to `build/benchmarks`, which git ignores, one file
a run; files that are needed meanwhile go to a scratch folder, at most 12 GB, and are removed.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import subprocess
import sys
import textwrap
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from benchmarks.figures import Figure, markdown
from benchmarks.machine import machine
from benchmarks.room import room

BENCHMARKS: Final = (
    "core",
    "timeline",
    "reclocking",
    "resume",
    "skipping",
    "partitioned",
    "commits",
    "objects",
    "upserts",
    "postgres",
    "first_rows",
    "binlog",
    "upkeep",
    "epoch",
    "wide",
    "polls",
    "polled_urls",
    "loads",
    "listings",
    "listed_objects",
    "bytewax_sources",
    "throughput",
    "sql",
    "following",
    "as_of",
    "spark_streams",
    "memory",
    "formats",
    "late",
    "kafka",
)
APART: Final = ("kafka_large", "kafka_outputs", "late.large", "core.frontiers", "postgres_flow", "first_rows_large")
"""Only run when you name them: five take long, the other is a part of `core`."""
HERE: Final = Path(__file__).resolve().parent
RESULTS: Final = HERE.parent / "build" / "benchmarks"


def _about(name: str) -> str:
    """Return what a benchmark says of itself first, read without loading what it measures.

    >>> _about("memory")
    'Peak memory while a backlog is read, for a size and for four times that size: it must not grow with the backlog.'
    """
    place = HERE.joinpath(*name.split("."))
    module = place.with_suffix(".py")
    text = (module if module.exists() else place / "__init__.py").read_text()
    said, *_ = (ast.get_docstring(ast.parse(text)) or name).split("\n\n")
    return " ".join(said.split())


def _listed() -> str:
    """Return a paragraph for each benchmark, and which of them are run unless some are named."""
    shown = [
        textwrap.fill(_about(name), 100, initial_indent=f"  {name:15}", subsequent_indent=" " * 17)
        for name in (*BENCHMARKS, *APART)
    ]
    return "\n".join(["benchmarks:", *shown, "", f"Unless some are named, all are run but {', '.join(APART)}."])


def _arguments() -> argparse.Namespace:
    known = (*BENCHMARKS, *APART)
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure Tidegauge beside its peers.",
        epilog=_listed(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="which benchmarks, of those below")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see it work; the figures mean nothing")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the JSON files")
    parser.add_argument("--scratch", help="folder for what is needed meanwhile (default: the temporary folder)")
    parser.add_argument("--alone", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    unknown = [name for name in chosen.names if name not in known]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r}; there are {', '.join(known)}")
    return chosen


def _alone(name: str, result: Path, *, quick: bool, scratch: str | None) -> None:
    """Run one benchmark in this process."""
    with room(quick=quick, scratch=scratch) as made:
        figures: list[Figure] = importlib.import_module(f"benchmarks.{name}").measure(made)
    result.write_text(json.dumps([figure.encode() for figure in figures], default=str))


def _apart(name: str, chosen: argparse.Namespace, folder: Path) -> list[Figure] | None:
    """Run one benchmark in a process of its own; return None when it failed, having said why."""
    result = folder / f"{name}.json"
    command = [sys.executable, "-m", "benchmarks", name, "--alone", str(result)]
    command += ["--quick"] * chosen.quick + (["--scratch", chosen.scratch] if chosen.scratch else [])
    print(f"{name} ...", file=sys.stderr, flush=True)
    begun = time.perf_counter()
    if subprocess.run(command, check=False).returncode != 0:
        return None
    print(f"{name}: {time.perf_counter() - begun:.0f} s", file=sys.stderr, flush=True)
    return [Figure.decode(figure) for figure in json.loads(result.read_text())]


def main() -> int:
    chosen = _arguments()
    if chosen.alone is not None:
        _alone(chosen.names[0], chosen.alone, quick=chosen.quick, scratch=chosen.scratch)
        return 0
    where = machine()
    print("\n".join(f"{name:>10}  {value}" for name, value in where.items()), flush=True)
    found: dict[str, list[Figure]] = {}
    failed = []
    with room(quick=chosen.quick, scratch=chosen.scratch) as made:
        for name in chosen.names or BENCHMARKS:
            figures = _apart(name, chosen, made.folder)
            if figures is None:
                failed.append(name)
            else:
                found[name] = figures
                print(f"\n## {name}\n\n{markdown(figures)}\n", flush=True)
    _keep(chosen.results, {"machine": where, "quick": chosen.quick, "figures": found})
    for name in failed:
        print(f"{name} failed; what it said is above", file=sys.stderr)
    return 1 if failed else 0


def _keep(folder: Path, content: dict[str, Any]) -> None:
    now = datetime.now(UTC)
    encoded = {name: [f.encode() for f in figures] for name, figures in content.pop("figures").items()}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{now:%Y%m%dT%H%M%SZ}.json"
    path.write_text(json.dumps({"at": now.isoformat(), **content, "figures": encoded}, indent=2, default=str))
    print(f"kept in {path}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
