"""Processes that this one starts, and that end with it, however it ends.

`Kept` is a folder and a server in the care of a keeper, a small process that holds the other end of a pipe of ours.
Nothing has to be done for the server to end: the system closes the pipe of a process that is gone.
"""

from tidegauge.processes.kept import LOG, Kept, hold

__all__ = ["LOG", "Kept", "hold"]
