"""Captured streams that leave the process: written to files and sockets, and replayed from them.

    notation           a time, a batch <-> JSON and bytes
    frames             bodies <-> bytes with lengths and checks
    form               events <-> bytes, from these two; which events are legal
    files, receiver    the ends: into a file or a socket, out of a file; out of a socket
    logged             a worker's event log as a captured stream

Programs on the core use it to connect processes. A flow never enters it: its state is in its store, and the queues
between its scopes (`operators.capture`) stay in the process.

Invariant: an event that comes out is the one that went in, or an error does. Nothing is unpickled.
"""

from tidegauge.dataflow.capture.files import EventReader, EventWriter
from tidegauge.dataflow.capture.form import Ending
from tidegauge.dataflow.capture.logged import LogQueue
from tidegauge.dataflow.capture.receiver import EventReceiver

__all__ = ["Ending", "EventReader", "EventReceiver", "EventWriter", "LogQueue"]
