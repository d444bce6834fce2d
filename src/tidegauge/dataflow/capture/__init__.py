"""Captured streams that leave the process: written to files and sockets, and replayed from them.

    notation, batches    a time, a batch <-> JSON and bytes
    frames               bodies <-> bytes with lengths and checks
    ledger               which events are legal
    form                 events <-> bytes, from these four
    writer, reader, receiver    the ends: into a file or a socket, out of a file, out of a socket
    logged               a worker's event log as a captured stream

Invariant: an event that comes out is the one that went in, or an error does. Nothing is unpickled.
"""

from tidegauge.dataflow.capture.form import Ending
from tidegauge.dataflow.capture.logged import LogQueue
from tidegauge.dataflow.capture.reader import EventReader
from tidegauge.dataflow.capture.receiver import EventReceiver
from tidegauge.dataflow.capture.writer import EventWriter

__all__ = ["Ending", "EventReader", "EventReceiver", "EventWriter", "LogQueue"]
