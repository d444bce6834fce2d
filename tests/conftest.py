"""What all tests share: those that start a Spark run one after another, in one process, so that sessions are shared;
so do those that share a fixture of their module.

No property is judged by how long an example takes: machines differ, and tests run beside each other.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, is_hypothesis_test, settings
from tests import java
from tests.azure import azure as azure
from tests.azure import azure_server as azure_server
from tests.buckets import bucket as bucket
from tests.depth import SLOW, TURNS, commits, examples, turn
from tests.gcs import google as google
from tests.gcs import translator as translator
from tests.kafka import kafka_broker as kafka_broker
from tests.kafka import make_topic as make_topic
from tests.kafka import own_broker as own_broker
from tests.kafka import topic as topic
from tests.kafka import topic_name as topic_name
from tests.mariadb import mariadb as mariadb
from tests.mariadb import own_mariadb as own_mariadb
from tests.mysql import mysql as mysql
from tests.mysql import mysql8 as mysql8
from tests.mysql import own_mysql as own_mysql
from tests.mysql import own_mysql8 as own_mysql8
from tests.postgres import logical as logical
from tests.postgres import own_logical as own_logical
from tests.postgres import own_server as own_server
from tests.postgres import postgres as postgres
from tests.s3 import lake as lake
from tests.s3 import s3_server as s3_server
from tests.s3_proxy import proxy as proxy
from tests.warm import warm as warm

pytest_plugins = [
    "tests.needed",
    "tidegauge.testing.plugin",  # also where it was installed before it had one
]

settings.register_profile(
    "tidegauge", max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tidegauge")
# For planted bugs (`scripts/mutants.py`): the same examples each time, and what fails is not made smaller.
settings.register_profile(
    "mutants", settings.get_profile("tidegauge"), derandomize=True, phases=(Phase.explicit, Phase.generate)
)

# What the user asked for stays. Stores and tables are synchronised with their disk thousands of times, which a file
# system in memory does at once; a process that is killed loses nothing on it.
MEMORY = Path("/dev/shm")
if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 4 << 30:
    os.environ.setdefault("TMPDIR", str(MEMORY))
    tempfile.tempdir = None  # somebody asked before, and the answer was kept
os.environ.setdefault("SPARK_SUBMIT_OPTS", java.SPARK)
os.environ.setdefault("SPARK_DAEMON_JAVA_OPTS", java.SPARK)
os.environ.setdefault("KAFKA_OPTS", java.KAFKA)


# Who runs the tests may ignore signals, as nohup and a shell's background do, and what is ignored stays so in every
# process that is started. Tests send them.
for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put every test that starts a Spark into one group of the parallel run, before xdist looks at the groups.

    Those of a module that share a fixture are in another, or each process would make it anew. Long tests are few, and
    spread. What is slow comes in turns (`tests/depth.py`). What needs a Connect server, which comes up in half a
    minute, is for `make long`.
    """
    names = [item.nodeid.partition("[")[0] for item in items]
    cells, seen, count = Counter(names), Counter[str](), commits()
    for item, name in zip(items, names, strict=True):
        mine = turn(name, seen[name], commits=count) if TURNS else 1
        seen[name] += 1
        if "connect" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.long)
        long = item.get_closest_marker("long") is not None
        slow = name in SLOW and not long
        if slow and mine != 0:
            item.add_marker(pytest.mark.long)
        if mine != 1 and (slow or (long and (cells[name] > 1 or name in SLOW))):
            item.add_marker(pytest.mark.later)
        if mine == 1 and is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.deep)
        if item.get_closest_marker("spark") is not None:
            item.add_marker(pytest.mark.xdist_group("spark"))
        elif "lake" in getattr(item, "fixturenames", ()) and item.get_closest_marker("long") is None:
            item.add_marker(pytest.mark.xdist_group("s3"))  # one server
        elif "own_broker" in getattr(item, "fixturenames", ()) or (
            item.get_closest_marker("long") is None and shares(item)
        ):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name bytes that are no text by their argument: what was packed holds the second in which it was, and each
    process of a parallel run must give a test the same name.
    """
    return argname if isinstance(val, bytes) and not (val.isascii() and val.decode().isprintable()) else None


def pytest_collection_finish() -> None:
    """Leave half a million objects of modules and tests to themselves whenever the garbage is collected."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Give it back, or a library says at the end of the process that it was leaked."""
    gc.unfreeze()


def shares(item: pytest.Item) -> bool:
    """Whether a test uses a fixture that is made once for its module."""
    asked = getattr(item, "_fixtureinfo", None)
    return asked is not None and any(found[-1].scope == "module" for found in asked.name2fixturedefs.values())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Forget the flows' files that a test has loaded, or the next test that imports a `shop` gets this one's."""
    path, modules = list(sys.path), set(sys.modules)
    result = yield
    folders = [folder for folder in sys.path if folder not in path]
    sys.path[:] = path
    for name in sys.modules.keys() - modules:
        file = getattr(sys.modules[name], "__file__", None)
        if file and any(Path(file).is_relative_to(folder) for folder in folders):
            del sys.modules[name]
    return result
