"""Settings of a Kafka connection hold references to secrets, and refuse what is not the user's to set."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from tidegauge import secrets
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.kafka import SettingTaken
from tidegauge.errors.secrets import SecretInClear, SecretUnavailable
from tidegauge.kafka import Settings


@pytest.mark.parametrize(
    "name",
    [
        "sasl.password",
        "ssl.key.password",
        "ssl.keystore.password",
        "ssl.key.pem",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.client.secret",
    ],
)
def test_a_secret_in_the_clear_is_refused_and_not_shown(name: str) -> None:
    with pytest.raises(SecretInClear, match="env:NAME") as raised:
        Settings.of("here:9092", {name: "flood"})
    assert "flood" not in str(raised.value)
    assert Settings.of("here:9092", {name: "env:WHERE"}).describe()[name] == "env:WHERE"


@pytest.mark.parametrize(
    "name", ["ssl.key.location", "ssl.ca.pem", "sasl.username", "sasl.oauthbearer.token.endpoint.url"]
)
def test_what_is_no_secret_may_be_given(name: str) -> None:
    assert Settings.of("here:9092", {name: "public"}).consumer()[name] == "public"


def test_references_are_resolved_in_what_goes_to_a_client_and_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key").write_text("deep water\n")
    monkeypatch.setenv("THE_PASSWORD", "flood")
    settings = Settings.of(
        "here:9092", {"sasl.password": "env:THE_PASSWORD", "ssl.key.password": f"file:{tmp_path}/key"}
    )
    for config in (settings.consumer(), settings.producer(), settings.admin()):
        assert (config["sasl.password"], config["ssl.key.password"]) == ("flood", "deep water")
    for shown in (
        repr(settings),
        str(settings.describe()),
        pickle.dumps(settings).decode("latin-1"),
        settings.digest(),
    ):
        assert "flood" not in shown
        assert "deep water" not in shown


def test_a_secret_that_changed_is_another_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings.of("here:9092", {"sasl.password": "env:THE_PASSWORD"})
    monkeypatch.setenv("THE_PASSWORD", "ebb")
    before = settings.digest()
    monkeypatch.setenv("THE_PASSWORD", "flood")
    assert settings.digest() != before


@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        ("env:NOT_THERE_AT_ALL", "no such variable"),
        ("env:EMPTY", "empty"),
        ("file:/nowhere/at/all", "cannot be read"),
    ],
)
def test_a_reference_that_leads_nowhere_says_so(
    reference: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMPTY", "")
    with pytest.raises(SecretUnavailable, match=problem):
        secrets.resolve("sasl.password", reference)


def test_a_file_that_is_no_text_is_not_quoted(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"\xff\xfesecret")
    with pytest.raises(SecretUnavailable) as raised:
        secrets.resolve("ssl.key.pem", f"file:{tmp_path}/key")
    assert "secret" not in raised.value.evidence["problem"]


@pytest.mark.parametrize(
    "name",
    [
        "enable.auto.commit",
        "auto.offset.reset",
        "api.version.request",
        "broker.version.fallback",
        "group.id",
        "transactional.id",
        "bootstrap.servers",
        "oauth_cb",
        "logger",
    ],
)
def test_what_is_ours_or_cannot_go_to_tasks_is_refused(name: str) -> None:
    with pytest.raises(SettingTaken, match=name):
        Settings.of("here:9092", {name: "x"})


@pytest.mark.parametrize("servers", ["", "a b", ",", "a,,b", 9092, None])
def test_servers_are_addresses(servers: object) -> None:
    with pytest.raises(InvalidArgument, match="servers"):
        Settings.of(servers)  # type: ignore[arg-type]


def test_ours_cannot_be_overridden_and_defaults_give_way() -> None:
    settings = Settings.of("here:9092", {"isolation.level": "read_uncommitted", "fetch.wait.max.ms": 7})
    config = settings.consumer(fetch_wait_max_ms=20, queued_min_messages=5)
    assert (config["fetch.wait.max.ms"], config["queued.min.messages"]) == (7, 5)
    assert (config["isolation.level"], config["enable.auto.commit"]) == ("read_uncommitted", False)
    assert Settings.of("here:9092").consumer()["isolation.level"] == "read_committed"
