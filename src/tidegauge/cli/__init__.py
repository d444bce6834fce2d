"""The command line: `tidegauge run | status | epochs | explain | locate | trace | tail | compact | resume | lease |
retime`, and `tidegauge simulate`, which touches nothing.

Exit codes: 0 for success, 2 for bad usage, 130 for a simulation that Ctrl-C ended, 1 otherwise. An error is printed
with its code and the next thing to do, on standard error; with `--json` it is an object on standard output as well.
There is no traceback unless `--debug` asks for it.
"""

import sys

__all__ = ["STOPPED", "main"]

STOPPED = "Stopped before anything was done."
"""The message when loading the program, or the flow, was interrupted."""


def main() -> None:
    """Run the command line. To load it takes a while, and may be interrupted as all else."""
    try:
        from tidegauge.cli.app import app
    except KeyboardInterrupt:
        sys.exit(STOPPED)
    sys.exit(app())
