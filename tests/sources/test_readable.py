"""Waiting for a connection, whichever number its file has."""

from __future__ import annotations

import fcntl
import os
import resource
import socket
from collections.abc import Iterator

import pytest

from tidegauge.sources.readable import readable

MANY = 4096


@pytest.fixture
def many_files() -> Iterator[None]:
    """A process that may open many files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < MANY:
        pytest.skip(f"no more than {hard} files may be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (MANY, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_file_beyond_the_1_024th_is_waited_for_like_any_other(many_files: None) -> None:
    here, there = socket.socketpair()
    far = fcntl.fcntl(here, fcntl.F_DUPFD, MANY - 10)
    try:
        assert far >= 1024
        assert not readable(far, 0.0)
        there.send(b"x")
        assert readable(far, 10.0)
        assert os.read(far, 1) == b"x"
        there.close()
        assert readable(far, 10.0)  # it is at its end
    finally:
        os.close(far)
        here.close()
