"""A server that is reached by TLS alone, with a certificate that the client checks in full."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from tests.postgres import Server
from tests.sources.postgres.shop import Shop
from tests.sources.postgres.test_refusals import first

from tidegauge.errors.postgressource import LoginRefused

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl to make a certificate")
ACCESS = "local all all trust\nhostssl all all 127.0.0.1/32 trust\n"


def certificate(folder: Path) -> Path:
    """Make a certificate for 127.0.0.1, which signs itself, and its key beside it."""
    made = folder / "server.crt"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    named = ["-subj", "/CN=tests", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    where = ["-keyout", str(folder / "server.key"), "-out", str(made)]
    subprocess.run([*command, *named, *where], check=True, capture_output=True)
    return made


def test_first_rows_and_changes_come_by_tls_and_from_no_server_that_nobody_vouches_for(
    own_logical: Server, tmp_path: Path
) -> None:
    server, trusted = own_logical, certificate(tmp_path)
    server.stop(stay=True)
    for name in ("server.crt", "server.key"):
        shutil.copy(tmp_path / name, server.data / name)
        shutil.chown(server.data / name, (server.data / "PG_VERSION").owner())
        (server.data / name).chmod(0o600)
    (server.data / "pg_hba.conf").write_text(ACCESS)
    server.settings = {**server.settings, "ssl": "on"}
    server.start()
    shop = Shop(server, tmp_path)
    shop.table("orders", "id int PRIMARY KEY, n int")
    shop.do("INSERT INTO orders VALUES (1, 1)")
    shop.publish()
    place = f"postgresql://postgres@127.0.0.1:{server.port}/{shop.name}?sslmode="
    other = tmp_path / "other"
    other.mkdir()
    shop.dsn = f"{place}verify-full&sslrootcert={certificate(other)}"
    with pytest.raises(LoginRefused, match="certificate verify failed"):
        first(shop)
    shop.dsn = f"{place}verify-full&sslrootcert={trusted}"
    shop.catch_up()
    shop.do("INSERT INTO orders VALUES (2, 2)")
    flow = shop.catch_up()
    assert shop.held(flow, "orders") == shop.there("orders")
