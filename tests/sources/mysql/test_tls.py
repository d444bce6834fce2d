"""A server that is reached by TLS alone, with a certificate that the client checks in full."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.mariadb import MariaDb
from tests.sources.mysql.store import Store
from tests.sources.postgres.test_tls import certificate

import tidegauge as tg
from tidegauge.errors.base import TidegaugeError

pytestmark = pytest.mark.long


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl to make a certificate")
def test_first_rows_and_changes_come_by_tls_and_from_no_server_that_nobody_vouches_for(
    own_mariadb: MariaDb, tmp_path: Path
) -> None:
    server, trusted = own_mariadb, certificate(tmp_path)
    server.stop(stay=True)
    for name in ("server.crt", "server.key"):
        shutil.copy(tmp_path / name, server.folder / name)
        shutil.chown(server.folder / name, (server.folder / "data").owner())
    files = {"ssl-cert": f"{server.folder}/server.crt", "ssl-key": f"{server.folder}/server.key"}
    server.settings |= {**files, "require-secure-transport": "ON"}
    server.start()
    shop = Store(server, tmp_path)
    shop.table("orders", "id int PRIMARY KEY, n int")
    shop.do("INSERT INTO orders VALUES (1, 1)")
    other = tmp_path / "other"
    other.mkdir()
    for said, refused in (
        (f"ssl-mode=VERIFY_IDENTITY&ssl-ca={certificate(other)}", "certificate verify failed"),
        ("ssl-mode=DISABLED", "(Access denied|insecure transport)"),  # of 10.11, of 11.4
    ):
        shop.tls = said
        with pytest.raises(TidegaugeError, match=rf"TG-0333.*{refused}"):
            shop.catch_up()
    shop.tls = f"ssl-mode=VERIFY_IDENTITY&ssl-ca={trusted}"
    shop.catch_up()
    large = "INSERT INTO orders SELECT seq, seq FROM seq_2_to_50000"
    shop.do(large, "DELETE FROM orders WHERE id = 7")
    flow = shop.catch_up()
    assert shop.held(flow, "orders") == shop.there("orders")


@pytest.mark.parametrize(
    "said", ["ssl-mode=MAYBE", "ssl-ca=ca.pem", "ssl-mode=REQUIRED&ssl-ca=ca.pem", "ssl_mode=REQUIRED", "ssl-mode"]
)
def test_an_address_that_says_something_else_of_tls_is_refused(said: str) -> None:
    with pytest.raises(TidegaugeError, match=r"TG-\d{4}.*") as raised:
        tg.MySqlSource(f"mysql://ada@db/shop?{said}", tables=["t"])
    assert "ssl-mode=DISABLED or PREFERRED or REQUIRED or VERIFY_CA or VERIFY_IDENTITY" in str(raised.value)
