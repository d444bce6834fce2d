"""The wire of a socket source: what comes over it, and what is refused with its bytes."""

from __future__ import annotations

import pickle
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.push import NotHeardYet, StartForgotten, SubscriptionBroken, WireBroken
from tidegauge.remap.binding import Bound
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.push.law import lawful
from tidegauge.testing import LogServer


@pytest.fixture
def log() -> Iterator[LogServer]:
    with LogServer() as server:
        for n in range(10):
            server.append({"n": n}, partition=f"p{n % 2}")
        yield server


def source_of(log: LogServer) -> tg.SocketSource:
    return tg.SocketSource(log.host, log.port, columns="n long")


def receive_until(source: tg.SocketSource, start: Frontier, end: Frontier) -> list[tuple[str, int]]:
    """Return the places of all records from one frontier to another, as the reader would take them."""
    found: list[tuple[str, int]] = []
    wire, reached = source.connect(start, Bound()), start
    try:
        while reached != end:
            if (received := wire.receive(3, 5.0)) is not None:
                lawful("feed", source.streams, reached, received, raw=True)
                for _stream, batch in received.batches:
                    places = zip(batch["_partition"].to_pylist(), batch["_offset"].to_pylist(), strict=True)
                    found += places
                reached = received.frontier
    finally:
        wire.close()
    return found


def test_a_connection_gives_every_record_from_its_start_on(log: LogServer) -> None:
    every = {(f"p{n % 2}", n // 2) for n in range(10)}
    assert set(receive_until(source_of(log), Frontier(), log.end)) == every
    start = Frontier({"p0": 3, "p1": 5})
    assert sorted(receive_until(source_of(log), start, log.end)) == [("p0", 3), ("p0", 4)]


def test_an_acknowledgement_reaches_the_server_once_it_has_said_how_far_it_is(log: LogServer) -> None:
    wire = source_of(log).connect(Frontier(), Bound())
    try:
        with suppress(NotHeardYet):  # it may have come with the first line
            wire.acknowledge(Frontier({"p0": 1}))
        eventually(lambda: wire.receive(100, 5.0) is not None)
        wire.acknowledge(Frontier({"p0": 2}))
        eventually(lambda: log.acknowledged == Frontier({"p0": 2}))
    finally:
        wire.close()


def test_a_server_that_has_not_said_how_far_its_log_goes_is_told_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        answers = threading.Thread(target=answer, args=(listener,))
        answers.start()
        wire = tg.SocketSource("127.0.0.1", listener.getsockname()[1], columns="n long").connect(Frontier(), Bound())
        with pytest.raises(NotHeardYet, match="has not said yet"):
            wire.acknowledge(Frontier({"p0": 1}))
        assert wire.receive(100, 0.0) is None, "the connection goes on"
        wire.close()
        answers.join()


def answer(listener: socket.socket) -> None:
    """Say the first line alone, and nothing until the client has left."""
    connection, _address = listener.accept()
    with connection:
        connection.sendall(b'{"version": 1, "log": "quiet"}\n')
        while connection.recv(1 << 16):
            pass


def test_a_start_that_the_server_no_longer_has_is_refused_with_both_numbers(log: LogServer) -> None:
    log.forget("p1", 3)
    with pytest.raises(StartForgotten, match=r"'p1' is 3.*from 2 on"):
        source_of(log).connect(Frontier({"p1": 2}), Bound())


@pytest.mark.parametrize(
    ("line", "error", "said"),
    [
        pytest.param(b"x" * (17 << 20), WireBroken, "longer than 16777216 bytes", id="without an end"),
        pytest.param(b"null\n", WireBroken, "'null'.*one JSON object", id="null"),
        pytest.param(b"\xff\xfe\n", WireBroken, "one JSON object", id="no text"),
        pytest.param(b'{"frontier": {"p0": 1e3}}\n', WireBroken, "1e3 is no whole number", id="a float"),
        pytest.param(b'{"frontier": {"p0": -1}}\n', WireBroken, "not from 0", id="negative"),
        pytest.param(b'{"frontier": {"p0": true}}\n', WireBroken, "not from 0", id="a boolean"),
        pytest.param(b'{"frontier": {"p0": 9223372036854775808}}\n', WireBroken, "not from 0", id="64 bits"),
        pytest.param(b'{"frontier": {"p0": ' + b"9" * 9000 + b"}}\n", WireBroken, "digits", id="9000 digits"),
        pytest.param(b'{"frontier": {"p0": NaN}}\n', WireBroken, "NaN is no whole number", id="NaN"),
        pytest.param(b'{"frontier": [5, 5]}\n', WireBroken, "not from 0", id="a list"),
        pytest.param(b'{"frontier": ' + b"[" * 99999 + b"\n", WireBroken, "recursion|line 1", id="nested"),
        pytest.param(b'{"frontier": {}}\n', SubscriptionBroken, "went back.*'p0': .5, 0.", id="back"),
        pytest.param(
            b'{"frontier": {}}\n{"frontier": {"p0": 5, "p1": 5}}\n',
            SubscriptionBroken,
            "went back",
            id="back and forth",
        ),
        pytest.param(
            b'{"frontier": {"p0": 5, "p1": 5}, "end": {"p0": 5}}\n{"frontier": {"p0": 5, "p1": 5}}\n',
            SubscriptionBroken,
            "its end before that, at 0",
            id="end",
        ),
        pytest.param(2 * b'{"partition": "p0", "offset": 5}\n', WireBroken, "ascending order", id="twice"),
        pytest.param(b'{"partition": "p0", "row": {}}\n', WireBroken, "it has no offset", id="no offset"),
        pytest.param(b'{"offset": 5, "row": {}}\n', WireBroken, "it has no partition", id="no partition"),
        pytest.param(b'{"partition": "p0", "offset": "5"}\n', WireBroken, "offset: expected", id="a text"),
        pytest.param(b'{"partition": "p0", "offset": 1e99}\n', WireBroken, "offset", id="a huge offset"),
        pytest.param(b'{"partition": "p0", "offset": -1}\n', SubscriptionBroken, "-1 in the column", id="below 0"),
        pytest.param(b'{"partition": "p0", "offset": 3}\n', SubscriptionBroken, "the record 3", id="given before"),
        pytest.param(b'{"partition": "p0", "offset": 7}\n', SubscriptionBroken, "the record 7", id="beyond"),
        pytest.param(
            b'{"stream": "x", "partition": "p0", "offset": 5}\n', SubscriptionBroken, "stream 'x'", id="stream"
        ),
    ],
)
def test_hostile_lines_are_refused_in_words(
    log: LogServer, line: bytes, error: type[TidegaugeError], said: str
) -> None:
    source, start = source_of(log), log.end
    wire = source.connect(start, Bound())

    def go_on(reached: Frontier) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if (received := wire.receive(100, 5.0)) is not None:
                lawful("feed", source.streams, reached, received, raw=True)
                reached = received.frontier

    try:
        whole = line if line.startswith(b'{"frontier"') else line + b'{"frontier": {"p0": 6, "p1": 5}}\n'
        threading.Thread(target=log.say, args=(whole,)).start()  # it waits for the reader of a long line
        with pytest.raises(error, match=said):
            go_on(start)
    finally:
        wire.close()


@pytest.mark.parametrize(
    "wrong", [{"host": ""}, {"port": 0}, {"port": "9000"}, {"timeout": 0}, {"columns": {}}, {"columns": ""}]
)
def test_what_cannot_be_a_source_is_refused_when_it_is_made(wrong: dict[str, object]) -> None:
    arguments: dict[str, object] = {"host": "localhost", "port": 9000, "columns": "n long", **wrong}
    with pytest.raises((InvalidArgument, TidegaugeError)):
        tg.SocketSource(**arguments)  # type: ignore[arg-type]


def test_it_is_a_value_that_travels_to_tasks(log: LogServer) -> None:
    source = source_of(log)
    assert pickle.loads(pickle.dumps(source)) == source
    assert source.describe()["columns"] == {"": "`n` BIGINT"} or source.describe()["columns"]
