"""What a hop does about the delays of Spark's workers leaves the process as it was."""

from __future__ import annotations

import gc
import os
import socket
from contextlib import suppress

import pytest

from tidegauge.engine.spark import hops


def test_what_tcp_peers_sent_is_acknowledged_at_once() -> None:
    if not hasattr(socket, "TCP_QUICKACK"):
        pytest.skip("Linux only")
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as spark:
        here, _ = server.accept()
        with here:
            here.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
            hops.acknowledge()
            assert here.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) == 1
            assert here.getblocking()
            spark.sendall(b"row")
            assert here.recv(3) == b"row"


def test_no_file_is_left_open_by_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert descriptors_of(server) == 1
        hops.acknowledge()
        assert descriptors_of(server) == 1


def descriptors_of(server: socket.socket) -> int:
    """Return how many descriptors of this process are of one socket; what else it has open may change any time."""
    found = 0
    for fd in map(int, os.listdir("/dev/fd")):
        with suppress(OSError):  # closed meanwhile
            found += os.path.sameopenfile(fd, server.fileno())
    return found


def test_a_default_timeout_of_the_users_does_not_reach_the_sockets_of_spark() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as spark:
        socket.setdefaulttimeout(5.0)
        try:
            hops.acknowledge()
        finally:
            socket.setdefaulttimeout(None)
        assert os.get_blocking(spark.fileno())


def test_what_is_loaded_is_frozen_once() -> None:
    hops.settle.cache_clear()
    gc.unfreeze()
    try:
        hops.settle()
        frozen = gc.get_freeze_count()
        kept = [object() for _ in range(10)]
        hops.settle()
        assert frozen > 1000
        assert gc.get_freeze_count() <= frozen + len(kept)
    finally:
        gc.unfreeze()
        hops.settle.cache_clear()
