"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path

__all__ = ["machine"]


def _first(path: str, pattern: str) -> str:
    try:
        found = re.search(pattern, Path(path).read_text(), re.MULTILINE)
    except OSError:
        return "unknown"
    return found[1].strip() if found else "unknown"


def _java() -> str:
    try:
        done = subprocess.run(["java", "-version"], capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        return "none"
    found = re.search(r'version "([^"]+)"', done.stderr + done.stdout)
    return found[1] if found else "unknown"


def machine() -> dict[str, str]:
    """Return the machine and the versions, for people. `load` is the number of running processes before we began."""
    memory = int(_first("/proc/meminfo", r"^MemTotal:\s+(\d+)") or 0) / (1 << 20)
    return {
        "processor": _first("/proc/cpuinfo", r"^model name\s*:\s*(.+)$"),
        "cores": str(os.cpu_count()),
        "memory": f"{memory:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "java": _java(),
        **{name: version(name) for name in ("tidegauge", "pyspark", "pyarrow", "deltalake")},
        "load": f"{os.getloadavg()[0]:.1f}",
    }
