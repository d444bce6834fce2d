"""The command line: `tidegauge run | status | epochs | explain | locate | trace | compact | resume | lease | retime`.

Exit codes: 0 when it did what was asked, 2 for bad usage, 1 otherwise. An error is printed with its code and the next
thing to do, on the error stream; with `--json` it is an object on the output stream as well. There is no traceback
unless `--debug` asks for it.
"""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line. What it stands on takes a second to load, and may be interrupted as all else."""
    try:
        from tidegauge.cli.app import app
    except KeyboardInterrupt:
        sys.exit("Stopped before anything was done.")
    sys.exit(app())
