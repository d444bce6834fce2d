"""Settings of librdkafka that mean the same to Kafka's client for Java are passed on to it, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegauge.errors.kafka import SettingNotShared
from tidegauge.errors.secrets import SecretUnavailable
from tidegauge.kafka.java import check_secrets, java
from tidegauge.kafka.settings import Settings, Value

SCRAM: dict[str, Value] = {
    "security.protocol": "sasl_ssl",
    "sasl.mechanisms": "SCRAM-SHA-512",
    "sasl.username": "tide",
    "sasl.password": "env:THE_PASSWORD",
}


def refusal(**settings: Value) -> str:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    with pytest.raises(SettingNotShared) as caught:
        java(Settings.of("here:9092", named))
    return str(caught.value)


def test_a_login_becomes_a_line_of_jaas_with_a_variable_for_the_secret() -> None:
    made = java(Settings.of("here:9092", SCRAM | {"ssl.ca.location": "/etc/ca.pem"}))
    assert made == {
        "bootstrap.servers": "here:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required "
            'username="tide" password="${env:THE_PASSWORD}";'
        ),
        "ssl.truststore.location": "/etc/ca.pem",
        "ssl.truststore.type": "PEM",
        "config.providers": "env",
        "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    }


def test_a_file_becomes_a_variable_of_its_folder(tmp_path: Path) -> None:
    settings: dict[str, Value] = {**SCRAM, "sasl.password": f"file:{tmp_path}/it"}
    made = java(Settings.of("here:9092", settings))
    assert f'password="${{dir:{tmp_path}:it}}"' in made["sasl.jaas.config"]
    assert made["config.providers"] == "dir"


def test_what_is_not_known_to_mean_the_same_is_refused() -> None:
    assert "'ssl.key.location'" in refusal(ssl_key_location="/it.pem")
    assert "'socket.timeout.ms'" in refusal(socket_timeout_ms=10)
    assert "with OAUTHBEARER it does not" in refusal(sasl_mechanism="OAUTHBEARER", sasl_username="tide")
    assert "with GSSAPI it does not" in refusal(sasl_username="tide")


@pytest.mark.parametrize("name", ['ti"de', "ti\\de", "ti\nde"])
def test_nothing_breaks_out_of_its_quotation_marks(name: str) -> None:
    assert "cannot be said to Java" in refusal(sasl_mechanism="PLAIN", sasl_username=name)


def test_nothing_in_the_clear_is_taken_for_a_variable() -> None:
    assert "begin of a variable" in refusal(client_id="${env:HOME}")
    assert "':' or a '}'" in refusal(sasl_mechanism="PLAIN", sasl_password="file:/a:b")


@pytest.mark.parametrize("secret", ['flo"od', "flo\\od", "flood\n"])
def test_a_secret_that_java_cannot_be_told_is_refused_and_not_shown(tmp_path: Path, secret: str) -> None:
    (tmp_path / "it").write_text(secret)
    settings = Settings.of("here:9092", {**SCRAM, "sasl.password": f"file:{tmp_path}/it"})
    with pytest.raises(SettingNotShared) as caught:
        check_secrets(settings)
    assert "flo" not in str(caught.value)


def test_no_secret_is_looked_up_before_a_frame_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("THE_PASSWORD", raising=False)
    settings = Settings.of("here:9092", SCRAM)
    java(settings)
    with pytest.raises(SecretUnavailable):
        check_secrets(settings)
    monkeypatch.setenv("THE_PASSWORD", "flood")
    check_secrets(settings)
