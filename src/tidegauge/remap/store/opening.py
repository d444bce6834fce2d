"""How the database of a store is opened: brought to the layout of this version, or as a copy where it cannot be
written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tidegauge.env import Env
from tidegauge.errors.base import TidegaugeError
from tidegauge.remap.store import untouched
from tidegauge.remap.store.address import File, Server
from tidegauge.remap.store.connect import Database
from tidegauge.remap.store.migrate import migrate

__all__ = ["copied", "opened"]


def opened(address: File | Server, env: Env) -> Database:
    """Open a database and bring it to the layout of this version."""
    database = Database(address, sleep=env.sleep)
    try:
        migrate(database, env)
    except BaseException:
        database.close()
        raise
    return database


def copied(address: File, env: Env, refused: TidegaugeError) -> tuple[Database, TemporaryDirectory[str]]:
    """Open a copy of a file that cannot be written, in a folder to be removed. What writes raises `refused`.

    Also what an older version wrote can be read from it.
    """
    try:
        folder = TemporaryDirectory(prefix="tidegauge-")
    except OSError:
        raise refused from None
    try:
        path = Path(folder.name) / address.path.name
        untouched.copy(address.path, path)
        database = opened(replace(address, path=path, url=address.url.set(database=str(path))), env)
    except BaseException:
        folder.cleanup()
        raise
    database.refused = refused
    return database, folder
