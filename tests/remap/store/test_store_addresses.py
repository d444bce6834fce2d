"""The address of a store: what psql takes is taken, what no store can have is refused, and no secret is shown."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.postgres import missing

from tidegauge.env import Env
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.store import InvalidStoreUrl, StoreDriverMissing
from tidegauge.remap.store import Store, secrets, shown
from tidegauge.remap.store.address import Server, parse
from tidegauge.remap.store.postgres import Postgres


@pytest.mark.parametrize(
    "url",
    [
        "mysql://root:hunter2@db/shop",
        "sqlite+aiosqlite:///shop.db",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///file:shop.db?uri=true",
        "shop.db",
        "",
        "hunter2",
        "host=db password=hunter2 dbname=shop",
        "sqlite:///{tmp}/shop.db?timeout=soon&password=hunter2",
        "postgresql+psycopg2://ada:hunter2@db/shop",
        "postgresql+nosuchdriver://ada:hunter2@db/shop",
        "postgresql://ada:hunter2@db",
        "postgresql://ada:hunter2@db:port/shop",
        "postgresql://ada:hunter2@[::1/shop",
        "postgresql://ada:hunter2@db/shop?sslmod=require",
        "postgresql://ada:hunter2@db/shop?password",
        "postgresql://ada:hunter2%@db/shop",
        "postgresql://ada:hunter2@hunter2@db/shop",
        "postgresql://ada:hunter2/hunter2@db/shop",
        "postgresql://ada:12/hunter2@db/shop",
        "postgresql://ada:hunter2?@/hunter2@db/shop",
    ],
)
def test_an_address_that_no_store_can_have_is_refused(url: str, env: Env, tmp_path: Path) -> None:
    with pytest.raises(InvalidStoreUrl) as caught:
        Store.open(url.replace("{tmp}", str(tmp_path)), env=env)
    assert "hunter2" not in str(caught.value)
    assert "sqlite:///shop.db" in str(caught.value)


def test_a_setting_that_postgresql_does_not_know_is_named() -> None:
    with pytest.raises(InvalidStoreUrl, match="'sslmod'"):
        parse("postgresql://ada@db/shop?sslmod=require")


@pytest.mark.parametrize(
    ("url", "settings"),
    [
        ("postgresql://ada@db/shop", {"user": "ada", "host": "db", "dbname": "shop"}),
        ("postgres://db/shop", {"host": "db", "dbname": "shop"}),
        ("postgresql+psycopg://db:5433/shop", {"host": "db", "port": "5433", "dbname": "shop"}),
        ("postgresql:///shop", {"dbname": "shop"}),
        ("postgresql:///shop?host=/run/pg", {"dbname": "shop", "host": "/run/pg"}),
        ("postgresql://%2Frun%2Fpg/shop", {"dbname": "shop", "host": "/run/pg"}),
        ("postgresql://[::1]:5433/shop", {"host": "::1", "port": "5433", "dbname": "shop"}),
        ("postgresql://a:1,b:2/shop?target_session_attrs=primary",
         {"host": "a,b", "port": "1,2", "dbname": "shop", "target_session_attrs": "primary"}),
        ("postgresql://ada:p%40s%2Fs@db/shop", {"user": "ada", "password": "p@s/s", "host": "db", "dbname": "shop"}),
        ("postgresql://db/shop?sslmode=verify-full&sslrootcert=/etc/ca.pem",
         {"host": "db", "dbname": "shop", "sslmode": "verify-full", "sslrootcert": "/etc/ca.pem"}),
        ("postgresql://?service=shop", {"service": "shop"}),
    ],
)  # fmt: skip
def test_an_address_means_what_it_means_to_psql(url: str, settings: dict[str, str]) -> None:
    address = parse(url)
    assert isinstance(address, Server)
    assert address.settings == settings


@pytest.mark.parametrize(
    ("url", "seen"),
    [
        ("postgresql://ada:hunter2@db:5433/shop", "postgresql://ada:***@db:5433/shop"),
        ("postgres://ada@db/shop?sslmode=require", "postgresql://ada@db/shop?sslmode=require"),
        ("postgresql://db/shop?user=ada&password=hunter2", "postgresql://ada:***@db/shop"),
        ("postgresql://ada@db/shop?sslpassword=hunter2", "postgresql://ada@db/shop?sslpassword=***"),
        ("postgresql://[::1]/shop", "postgresql://[::1]/shop"),
        ("postgresql://a,b/shop", "postgresql:///shop?host=a,b&port=,"),
        ("sqlite:////tmp/shop.db?password=hunter2", "sqlite:////tmp/shop.db?password=%2A%2A%2A"),
    ],
)
def test_what_is_shown_of_an_address_has_no_secret_in_it(url: str, seen: str) -> None:
    assert shown(url) == seen
    assert "hunter2" not in repr(parse(url))


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12)


@given(user=WORDS, password=WORDS, name=WORDS)
def test_what_is_shown_is_the_address_but_for_its_password(user: str, password: str, name: str) -> None:
    parts = {"user": user, "password": password, "dbname": name}
    address = parse("postgresql://{}:{}@db/{}".format(*(quote(part, safe="") for part in parts.values())))
    assert isinstance(address, Server)
    assert address.settings == {**parts, "host": "db"}
    again = parse(address.shown)
    assert isinstance(again, Server)
    assert again.settings == {**parts, "host": "db", "password": "***"}


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ada:hunter2@127.0.0.1:1/shop",
        "postgresql://ada@127.0.0.1:1/shop?password=hunter2&sslpassword=hunter2",
    ],
)
def test_a_password_is_in_no_error(url: str, env: Env) -> None:
    with pytest.raises(TidegaugeError) as caught:
        Store.open(url, env=env)
    chain: BaseException | None = caught.value
    while chain is not None:
        told = f"{chain!s} {chain!r}"
        assert "hunter2" not in told
        chain = chain.__cause__ or (None if chain.__suppress_context__ else chain.__context__)


def test_without_the_driver_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch, env: Env) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StoreDriverMissing) as caught:
        Store.open("postgresql://ada:hunter2@db/shop", env=env)
    assert "pip install 'tidegauge[postgres]'" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_the_driver_is_loaded_by_the_first_address_of_a_server_and_not_before() -> None:
    look = "import sys, tidegauge; from tidegauge.remap.store import Store, shown; found = 'psycopg' in sys.modules; "
    ask = "shown('postgresql://db/shop'); print(found, 'psycopg' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", look + ask], capture_output=True, text=True, check=True)
    assert done.stdout == "False True\n"


def test_without_a_server_its_tests_are_skipped_here_and_fail_in_ci() -> None:
    with pytest.raises(pytest.skip.Exception, match="apt-get install postgresql"):
        missing({})
    with pytest.raises(pytest.fail.Exception, match="apt-get install postgresql"):
        missing({"CI": "true"})


def test_a_secret_that_a_server_repeats_is_taken_out() -> None:
    address = parse("postgresql://ada:hunter2@db/shop?sslpassword=hunter3")
    assert isinstance(address, Server)
    error = Postgres(address).explain(ValueError("no\nhunter2 and no hunter3 here"), lost=True)
    assert error.evidence["detail"] == "no *** and no *** here"


def test_what_must_not_be_shown_is_known_from_everywhere_that_psql_takes_it_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passfile, services = tmp_path / "passes", tmp_path / "services"
    passfile.write_text(
        "# a comment:with:five:fields:in it\n*:*:*:ada:one\\:half\ndb:5432:shop:bob:two\nno password\n"
    )
    services.write_text("[shop]\nhost=db\npassword = three\n[other]\nsslpassword=four\n")
    monkeypatch.setenv("PGPASSWORD", "five")
    monkeypatch.setenv("PGPASSFILE", str(passfile))
    monkeypatch.setenv("PGSERVICEFILE", str(services))
    known = secrets("postgresql://ada:six%2Fseven@db/shop?sslpassword=eight")
    assert sorted(known) == sorted(["one:half", "two", "three", "four", "five", "six/seven", "eight"])
    monkeypatch.setenv("PGPASSWORD", "")
    for name in ("PGPASSFILE", "PGSERVICEFILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    assert secrets("postgresql://ada@db/shop") == ()
    assert secrets(f"sqlite:///{tmp_path}/shop.db") == ()
