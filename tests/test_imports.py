"""What is loaded when: a name when it is asked for, a library when something needs it. Held by what is loaded, not by
time: one import too many makes every command slower, and no other test sees it."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import tidegauge as tg

SRC = Path(tg.__file__).parent
LAZY = sorted(
    ".".join(("tidegauge", *path.parent.relative_to(SRC).parts))
    for path in SRC.rglob("__init__.py")
    if "__getattr__, __dir__, __all__ = names(" in path.read_text()
)
HEAVY = {
    "confluent_kafka",
    "deltalake",
    "numpy",
    "pandas",
    "psycopg",
    "pyiceberg",
    "pyarrow",
    "pyspark",
    "sqlalchemy",
    "tidegauge.dataflow",
    "tidegauge.flow",
    "tidegauge.job",
    "tidegauge.remap",
    "tidegauge.sinks",
    "tidegauge.sources",
}
"""What neither the package itself nor the help of the command line needs."""


def loaded(code: str, *names: str, cwd: Path | None = None) -> set[str]:
    """Return which of these modules are loaded after some code, run by an interpreter of its own."""
    tell = f"import sys; print(*(set({names!r}) & sys.modules.keys()))"
    program = f"import atexit\natexit.register(lambda: exec({tell!r}))\n{code}"
    done = subprocess.run([sys.executable, "-c", program], cwd=cwd, capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def command(*args: str) -> str:
    return f"import sys; sys.argv = {['tidegauge', *args]!r}; from tidegauge.cli import main; main()"


def test_the_packages_with_names_that_are_loaded_when_asked_for_are_known() -> None:
    assert {"tidegauge", "tidegauge.dataflow", "tidegauge.sinks", "tidegauge.sources"} <= set(LAZY)


@pytest.mark.parametrize("package", LAZY)
def test_type_checkers_see_the_names_that_are_found_when_the_program_runs(package: str) -> None:
    module = importlib.import_module(package)
    tree = ast.parse(Path(str(module.__file__)).read_text())
    shown = {
        alias.name: imported.module
        for block in tree.body
        if isinstance(block, ast.If)
        for imported in block.body
        if isinstance(imported, ast.ImportFrom)
        for alias in imported.names
        if alias.name == alias.asname  # otherwise it is not passed on
    }
    assert dir(module) == module.__all__ == sorted(shown)
    for name, home in shown.items():
        assert getattr(module, name) is getattr(importlib.import_module(str(home)), name)
    own = {path.stem for path in Path(str(module.__file__)).parent.iterdir()}
    assert not own & shown.keys(), "a name that a module has too is one or the other, by what was loaded first"


def test_a_star_import_takes_all_names_and_an_unknown_name_is_said() -> None:
    namespace: dict[str, object] = {}
    exec("from tidegauge import *", namespace)
    assert dir(tg) == sorted(namespace.keys() - {"__builtins__"})
    with pytest.raises(AttributeError, match="module 'tidegauge' has no attribute 'KafkaSauce'"):
        _ = tg.KafkaSauce  # type: ignore[attr-defined]
    with pytest.raises(ImportError, match="KafkaSauce"):
        exec("from tidegauge import KafkaSauce")


@pytest.mark.parametrize("code", ["import tidegauge", command("--help"), command("lease", "--help")])
def test_the_package_and_the_help_load_nothing_that_a_flow_needs(code: str) -> None:
    assert loaded(code, *HEAVY) == set()


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A flow into a Delta table that has run."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.jsonl").write_text('{"id": 1}\n')
    (tmp_path / "shop.py").write_text(
        "import tidegauge as tg\n"
        "flow = tg.Dataflow('shop', store='sqlite:///shop.db')\n"
        "orders = flow.source('orders', tg.FileSource('in/*.jsonl', format=tg.Json('id long')))\n"
        "flow.sink('orders', orders.filter('id > 0'), tg.DeltaSink('lake'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "tidegauge", "run", "shop.py", "--until", "caught-up", "--engine", "local"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return tmp_path


def test_status_loads_what_it_looks_with_and_nothing_that_moves_rows(shop: Path) -> None:
    moving = {
        "confluent_kafka",
        "pandas",
        "psycopg",
        "pyarrow.compute",
        "pyarrow.dataset",
        "pyarrow.parquet",
        "pyspark",
        "tidegauge.dataflow.worker",
        "tidegauge.engine",
        "tidegauge.maintenance.repair",
        "tidegauge.flow.runner",
        "tidegauge.flow.stage",
        "tidegauge.sinks.kafka",
        "tidegauge.sinks.parquet.sink",
        "tidegauge.sources.generator",
        "tidegauge.sources.kafka",
        "tidegauge.sources.reader",
    }
    assert loaded(command("status", "shop.py"), *moving, cwd=shop) == set()
