"""Through TLS with a CA of its own and SCRAM flows read and write; what is wrong is named, without secrets."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.kafka import present, unique
from tests.sinks.kafka.conftest import consumed
from tests.sources.kafka.writing import numbers, write

import tidegauge as tg
from tidegauge.kafka.clients import kafka
from tidegauge.testing import KafkaBroker
from tidegauge.testing.broker import free_ports
from tidegauge.testing.properties import HOST

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("secured broker")]

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
PASSWORD = "deep water"


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)


def authority(folder: Path, name: str) -> Path:
    """Make a CA and return its certificate."""
    key, certificate = folder / f"{name}.key", folder / f"{name}.pem"
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}",
            "-keyout", str(key), "-out", str(certificate))  # fmt: skip
    return certificate


def server(folder: Path, ca: Path) -> Path:
    """Return a key and a certificate of this machine's, by a CA, in one file."""
    key, asked, signed, names = (folder / f"server.{kind}" for kind in ("key", "csr", "crt", "ext"))
    names.write_text(f"subjectAltName=IP:{HOST}\n")
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=broker", "-keyout", str(key), "-out", str(asked))
    openssl("x509", "-req", "-in", str(asked), "-CA", str(ca), "-CAkey", str(ca.with_suffix(".key")),
            "-CAcreateserial", "-days", "2", "-extfile", str(names), "-out", str(signed))  # fmt: skip
    store = folder / "server.pem"
    store.write_text(key.read_text() + signed.read_text())
    return store


@dataclass(frozen=True)
class Door:
    """The broker, where its secured door is, and the CA of that."""

    broker: KafkaBroker
    servers: str
    ca: Path
    stranger: Path


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    present()
    folder = tmp_path_factory.mktemp("secured")
    ca, stranger = authority(folder, "ours"), authority(folder, "stranger")
    broker, port = KafkaBroker(), free_ports().plain
    at = {"PLAINTEXT": broker.ports.plain, "CONTROLLER": broker.ports.controller, "TLS": port}
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    broker.settings.update(
        {
            "listeners": ",".join(f"{name}://{HOST}:{number}" for name, number in at.items()),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,TLS:SASL_SSL",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "listener.name.tls.ssl.keystore.type": "PEM",
            "listener.name.tls.ssl.keystore.location": str(server(folder, ca)),
            **{f"listener.name.tls.{name.lower()}.sasl.jaas.config": login for name in MECHANISMS},
        }
    )
    with broker:
        library, admin = kafka("confluent_kafka.admin"), broker.admin()
        for mechanism in (library.ScramMechanism.SCRAM_SHA_256, library.ScramMechanism.SCRAM_SHA_512):
            how = library.ScramCredentialInfo(mechanism, 4096)
            made = library.UserScramCredentialUpsertion("alice", how, PASSWORD.encode())
            admin.alter_user_scram_credentials([made])["alice"].result(30)
        yield Door(broker, f"{HOST}:{port}", ca, stranger)


def flow_of(root: Path, door: Door, topic: str, into: str, *, mechanism: str, ca: Path) -> tg.Dataflow:
    settings: dict[str, str | int | float | bool] = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": mechanism,
        "sasl.username": "alice",
        "sasl.password": "env:THE_PASSWORD",
        "ssl.ca.location": str(ca),
    }
    made = tg.Dataflow("shop", store=f"sqlite:///{root}/flow.db", tick=0.1)
    source = tg.KafkaSource(door.servers, topic=topic, format=tg.Json("n long"), settings=settings)
    made.sink(
        "out", made.source("in", source), tg.KafkaSink(door.servers, topic=into, partitions=1, settings=settings)
    )
    return made


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_flow_reads_and_writes_through_tls_with_a_ca_of_its_own_and_scram(
    mechanism: str, door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_PASSWORD", PASSWORD)
    topic, into = door.broker.create_topic(unique("in")), unique("out")
    write(door.broker.endpoint, topic, numbers(range(20)))
    flow = flow_of(tmp_path, door, topic, into, mechanism=mechanism, ca=door.ca)
    flow.run("caught-up", engine=tg.LocalEngine(threads=0))
    assert sorted(message.row["n"] for message in consumed(door.broker.servers, into)) == list(range(20))
    [source] = tg.status(flow).sources
    assert (source.note, source.error) == ("", None)

    for ca, password in ((door.stranger, PASSWORD), (door.ca, "a wrong guess")):
        monkeypatch.setenv("THE_PASSWORD", password)
        report = tg.status(flow_of(tmp_path, door, topic, into, mechanism=mechanism, ca=ca))
        for found in (report.sources[0], report.outputs[0]):
            assert found.state == "stalled"
            assert found.error is not None
            assert found.error.code == "TG-0807", found.error
            assert password not in str(found.error)
