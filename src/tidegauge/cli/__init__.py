"""The command line: `tidegauge run | status | epochs | explain | locate | trace | compact | resume | lease | retime`.

Exit codes: 0 when it did what was asked, 2 for bad usage, 1 otherwise. An error is printed with its code and the next
thing to do, on the error stream; with `--json` it is an object on the output stream as well. There is no traceback
unless `--debug` asks for it.
"""

import sys

__all__ = ["STOPPED", "main"]

STOPPED = "Stopped before anything was done."
"""What is said when loading the program, or the flow, was interrupted."""


def main() -> None:
    """Run the command line. To load it takes a while, and may be interrupted as all else."""
    try:
        from tidegauge.cli.app import app
    except KeyboardInterrupt:
        sys.exit(STOPPED)
    sys.exit(app())
