"""What Azure's blobs have of their own: pages and batches of other sizes, keys and tokens."""

from __future__ import annotations

from contextlib import closing

import pytest
from tests.azure import ACCOUNT, KEY, AzureLake
from tests.objects.test_other_clouds import SINKS, to_cloud
from tests.s3_proxy import Fault, Proxy
from tests.sinks.conftest import OUTPUT

from tidegauge.errors.objects import CredentialsRefused, ObjectStoreAway
from tidegauge.objects.client import at_once
from tidegauge.objects.path import ObjectPath

pytestmark = pytest.mark.long

PAGE = 5000
"""How many blobs an answer to a listing has at most."""
BATCH = 256
"""How many a request may delete."""


def test_a_listing_of_two_pages_is_whole(azure: AzureLake) -> None:
    put = to_cloud(azure, "many")
    names = [f"{number:05}" for number in range(PAGE + 1)]
    assert list(at_once(lambda name: put(name, b""), names)) == [None] * len(names)
    assert list(ObjectPath.of(azure.at("many")).below()) == names


def test_more_objects_go_than_a_batch_may_have(azure: AzureLake) -> None:
    put, place = to_cloud(azure, "many"), ObjectPath.of(azure.at("many"))
    list(at_once(lambda name: put(name, b""), [str(number) for number in range(BATCH + 1)]))
    place.clear()
    assert list(place.below()) == []


@pytest.mark.parametrize("fault", ["reset before", "cut before", "dropped after"])
def test_many_go_although_a_connection_is_lost(azure: AzureLake, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put, place = to_cloud(azure, "many"), ObjectPath.of(azure.at("many"))
    list(at_once(lambda name: put(name, b""), [str(number) for number in range(BATCH + 1)]))
    proxy = Proxy(f"http://127.0.0.1:{azure.server.port}", faults=[Fault(fault, "POST", "comp=batch")])
    with closing(proxy):
        monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", f"{proxy.url}/{ACCOUNT}")
        place.clear()
    assert proxy.faults[0].met == 1
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", azure.server.environment()["AZURE_STORAGE_ENDPOINT"])
    assert list(place.below()) == []


@pytest.mark.parametrize("kind", SINKS)
def test_another_key_is_refused_and_in_no_error(azure: AzureLake, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = KEY.replace("Eby8", "AAAA")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", wrong)
    sink = SINKS[kind](azure.at())
    with pytest.raises(CredentialsRefused) as refused:
        sink.open(OUTPUT)
    assert wrong not in str(refused.value)
    assert wrong not in repr(sink)


def test_a_token_in_the_environment_is_in_no_error(azure: AzureLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_KEY")
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "sv=2021-08-06&sp=rl&sig=hunter2hunter2")
    with pytest.raises(CredentialsRefused) as refused:
        ObjectPath.of(azure.at()).exists()
    assert "hunter2" not in str(refused.value)


def test_an_endpoint_without_encryption_is_to_be_allowed(azure: AzureLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_ALLOW_HTTP", "false")
    with pytest.raises(ObjectStoreAway, match="AZURE_ALLOW_HTTP"):
        ObjectPath.of(azure.at()).exists()
