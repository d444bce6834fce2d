"""Credentials by reference: a profile in AWS's shared files, renewed there while a flow runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.s3 import CREDENTIALS, Lake

from tidegauge.errors.objects import CredentialsRefused
from tidegauge.objects.path import ObjectPath
from tidegauge.objects.profile import provider

KEYS = "[{}]\naws_access_key_id = {}\naws_secret_access_key = hunter2\naws_session_token = t\n"


def test_the_keys_of_a_profile_are_used_and_read_again_and_those_of_the_environment_come_first(
    tmp_path: Path,
) -> None:
    shared = tmp_path / "credentials"
    shared.write_text(KEYS.format("tide", "first"))
    environ = {"AWS_PROFILE": "tide", "AWS_SHARED_CREDENTIALS_FILE": str(shared), "AWS_CONFIG_FILE": "/nowhere"}
    found = provider(environ)
    assert found is not None
    assert (found()["access_key_id"], found()["token"]) == ("first", "t")
    shared.write_text(KEYS.format("tide", "second"))
    assert found()["access_key_id"] == "second"
    assert provider({**environ, **CREDENTIALS}) is None
    assert provider({"AWS_SHARED_CREDENTIALS_FILE": "/nowhere", "AWS_CONFIG_FILE": "/nowhere"}) is None


def test_a_store_is_reached_with_a_profile_and_one_without_keys_is_refused(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "credentials"
    shared.write_text(KEYS.format("tide", "first"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(shared))
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    monkeypatch.setenv("AWS_PROFILE", "tide")
    one = ObjectPath.of(lake.at("orders/0"))
    assert one.put_new(b"rows")
    assert one.read_bytes() == b"rows"
    monkeypatch.setenv("AWS_PROFILE", "other")
    with pytest.raises(CredentialsRefused) as caught:
        one.read_bytes()
    assert "'other'" in str(caught.value)
    assert "hunter2" not in str(caught.value)
