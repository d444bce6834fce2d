"""Fetches Kafka, of which the tests start a broker of their own. Without it they are skipped and say so."""

from __future__ import annotations

import os
import sys

from tidegauge.errors.base import TidegaugeError
from tidegauge.testing.jars import cache, class_path, pins


def main() -> int:
    """Fetch what is missing."""
    folder = cache(os.environ)
    if not all((folder / name).exists() for name in pins()):
        print(f"Fetching Kafka into {folder} (44 MB, once).", flush=True)
    try:
        class_path()
    except TidegaugeError as error:
        print(error, file=sys.stderr)
        print("The tests on a Kafka broker are skipped.", file=sys.stderr)
        return 1 if os.environ.get("CI") else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
