"""Where bytewax cannot be had, what needs it is skipped, and everything else is collected."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.needed import NO_BYTEWAX

ROOT = Path(__file__).parents[1]

NAMED = "bytewax needs Python 3.11 or 3.12"
WITHOUT = "import sys; sys.modules['bytewax'] = None; import pytest; sys.exit(pytest.main(sys.argv[1:]))"


def test_without_bytewax_no_module_fails_to_load() -> None:
    places = [
        "tests/bytewax",
        "tests/flow/test_bytewax_sources.py",
        "tests/sources/bytewax",
        "tests/sources/test_source_conformance.py",
        "src/tidegauge/bytewax",
        "src/tidegauge/sources/bytewax",
    ]
    asked = [sys.executable, "-c", WITHOUT, "--collect-only", "-qq", "-rs", "-p", "no:cacheprovider", *places]
    told = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True)
    assert told.returncode == 0, told.stdout[-3000:]
    skipped = [line.split()[2] for line in told.stdout.splitlines() if line.endswith(NAMED)]
    assert {"tests/bytewax/test_as_output.py:0:", "tests/flow/test_bytewax_sources.py:0:"} <= {*skipped}
    assert "src/tidegauge/bytewax/following.py:0:" in skipped
    assert "tests/sources/test_source_conformance.py: " in told.stdout


def test_it_is_not_said_to_be_missing_where_it_is_there() -> None:
    assert bool(NO_BYTEWAX) == (sys.version_info >= (3, 13))
