"""Makes an environment with moto, an S3-compatible server. Without it the tests of object stores are skipped.

moto brings half of the services of AWS with it, so it has an environment of its own, in the cache of this user.
"""

from __future__ import annotations

import os
import subprocess
import sys

from tidegauge.testing.jars import cache

PINS = ("moto[s3]==5.2.5", "flask==3.1.3", "flask-cors==6.0.5")


def main() -> int:
    """Make the environment, unless it is there."""
    folder = cache(os.environ, "s3")
    made = folder / ".made"
    what = "\n".join([sys.version, *PINS])
    if made.exists() and made.read_text() == what:
        return 0
    print(f"Installing moto into {folder} (once):", *PINS, flush=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    try:
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        subprocess.run([*pip, *PINS], check=True)
    except subprocess.CalledProcessError as error:
        print(error, file=sys.stderr)
        print("The tests of object stores are skipped.", file=sys.stderr)
        return 1 if os.environ.get("CI") else 0
    made.write_text(what)
    return 0


if __name__ == "__main__":
    sys.exit(main())
