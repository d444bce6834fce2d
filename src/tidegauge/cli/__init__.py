"""The command line: `tidegauge run | status | epochs | explain | locate | trace | compact | resume`.

Exit codes: 0 when it did what was asked, 2 for bad usage, 1 otherwise. An error is printed with its code and the next
thing to do, on the error stream; with `--json` it is an object on the output stream as well. There is no traceback
unless `--debug` asks for it.
"""

from tidegauge.cli.app import main

__all__ = ["main"]
