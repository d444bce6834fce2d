"""A folder in memory is held beside a real one: the same life of both, write by write and call by call.

Each life draws how a source reads, and what writers do to its files: they append, with a last record that may be
torn, rotate by renaming, copy and truncate, compress, shorten, rewrite in place, replace, save anew, remove and bring
back. A partition is named after the inode number of its file, which differs. So both sides call it by the first path
of the file and by how many files were there under that path before.

Modification times are those that a life draws. Nobody can set when a real file was made, so birth times differ.
Links, folders within the pattern and files that may not be read are not simulated.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st
from tests.depth import deep
from tests.testing.simulation.parity import Pair

import tidegauge as tg
from tidegauge.errors.base import TidegaugeError
from tidegauge.remap.binding import Observation
from tidegauge.sources import FileSource
from tidegauge.testing.simulation.upstream.folder import Folder, read_from

START: Final = datetime(2026, 11, 23, tzinfo=UTC)
STEPS: Final = 25
SAID: Final = ("lower", "upper", "seen", "end", "size", "bound", "expected", "found", "count")
"""What an error says that is the same on both sides: a file that is held open has another path."""
NAMES: Final = ("a.log", "b.log", "a.log.1", "c.log")


def said(error: TidegaugeError) -> Any:
    return type(error), {name: error.evidence.get(name) for name in SAID}


class FolderLife:
    """One life of both sides: what writers do."""

    def __init__(self, root: Path, draw: Callable[[Any], Any]) -> None:
        self.draw = draw
        self.root = root
        self.root.mkdir()
        self.folder = Folder()
        self.now = START
        self.number = 0
        self.lost: dict[str, bytes] = {}
        self.labels: tuple[dict[str, str], dict[str, str]] = {}, {}
        self.options: dict[str, Any] = {
            "path": f"{root}/{draw(st.sampled_from(['*.log', '*.log*', 'a.log']))}",
            "format": tg.Json(draw(st.sampled_from(["n long", "n long", None]))),
            "metadata": True,
            "max_bytes_per_epoch": draw(st.sampled_from([15, 40, 1 << 20])),
            "split_bytes": draw(st.sampled_from([1, 20, 1 << 20])),
            "on_data_loss": draw(st.sampled_from(["stop", "gap"])),
        }
        self.pair = Pair(
            FileSource(**self.options),
            read_from(FileSource(**self.options), self.folder),
            draw,
            said=said,
            alike=self.named_alike,
            label=lambda side, key: self.labels[side].get(key, "not known yet"),
        )

    def named_alike(self, real: Observation, simulated: Observation) -> None:
        """Name the files that are new, by their first paths."""
        for labels, it in zip(self.labels, (real, simulated), strict=True):
            new = sorted((str(it.details[key]["first"]), key) for key in it.details.keys() - labels.keys())
            for path, key in new:
                labels[key] = f"{path} {sum(name.startswith(f'{path} ') for name in labels.values())}"
        facts = [
            {self.labels[side][key]: {name: detail[name] for name in ("path", "head", "digest", "size", "final")}}
            for side, it in enumerate((real, simulated))
            for key, detail in sorted(it.details.items(), key=lambda one: str(one[1]["first"]))
        ]
        half = len(facts) // 2
        assert facts[:half] == facts[half:]

    # What writers do.

    def path(self, *, there: bool = True) -> str:
        names = self.folder.paths if there else [f"{self.root}/{name}" for name in NAMES]
        return str(self.draw(st.sampled_from(names)))

    def stamp(self, path: str) -> None:
        nanoseconds = (self.now - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000
        os.utime(path, ns=(nanoseconds, nanoseconds))

    def lines(self) -> bytes:
        """Return lines, the last one torn at times."""
        count = self.draw(st.integers(1, 3))
        numbers = range(self.number, self.number + count)
        self.number += count
        whole = b"".join(json.dumps({"n": n}).encode() + b"\n" for n in numbers)
        if self.draw(st.integers(0, 7)) == 7:
            whole += b"no record\n"
        return whole[: -self.draw(st.sampled_from([1, 3]))] if self.draw(st.integers(0, 3)) == 3 else whole

    def write(self, path: str, data: bytes, how: str) -> None:
        with Path(path).open(how) as file:
            file.write(data)
        self.stamp(path)

    def append(self) -> None:
        path, data = self.path(there=False), self.lines()
        self.folder.append(path, data, at=self.now)
        self.write(path, data, "ab")

    def mend(self) -> None:
        """End a torn line."""
        path = self.path()
        self.folder.append(path, b"\n", at=self.now)
        self.write(path, b"\n", "ab")

    def rotate(self) -> None:
        path, to = self.path(), self.path(there=False)
        self.folder.rename(path, to)
        Path(path).rename(to)

    def copy_and_truncate(self) -> None:
        path = self.path()
        data = self.lost[path] = self.folder.content(path)
        if self.draw(st.booleans()):
            self.put(f"{path}.1", data)
        self.folder.shrink(path, 0, at=self.now)
        self.write(path, b"", "wb")

    def compress(self) -> None:
        path = self.path()
        self.put(f"{path}.gz", gzip.compress(self.folder.content(path), mtime=0))
        self.folder.remove(path)
        Path(path).unlink()

    def shrink(self) -> None:
        path = self.path()
        size = self.draw(st.integers(0, len(self.folder.content(path))))
        self.folder.shrink(path, size, at=self.now)
        os.truncate(path, size)
        self.stamp(path)

    def rewrite(self) -> None:
        path, data = self.path(), self.lines()
        self.folder.rewrite(path, data, at=self.now)
        self.write(path, data, "wb")

    def replace(self) -> None:
        """Put a new file under a name; an editor saves what was there as it is, or with more at its end."""
        path = self.path()
        there = self.folder.content(path) if self.draw(st.booleans()) else b""
        self.put(path, there + (b"" if there and self.draw(st.booleans()) else self.lines()))

    def bring_back(self) -> None:
        """Bring back what was lost, from a copy: under its own name, or as a rotated log."""
        path = self.draw(st.sampled_from(sorted(self.lost)))
        self.put(self.draw(st.sampled_from([path, f"{path}.2"])), self.lost[path])

    def put(self, path: str, data: bytes) -> None:
        self.folder.replace(path, data, at=self.now)
        beside = self.root.parent / "beside"
        self.write(str(beside), data, "wb")
        beside.rename(path)

    def remove(self) -> None:
        path = self.path()
        self.lost[path] = self.folder.content(path)
        self.folder.remove(path)
        Path(path).unlink()

    def leave(self) -> None:
        """Take the folder away, look, and bring it back."""
        self.folder.away = True
        elsewhere = self.root.rename(self.root.parent / "elsewhere")
        self.probe()
        self.read()
        self.folder.away = False
        elsewhere.rename(self.root)

    # What a flow asks.

    def probe(self) -> None:
        self.pair.probe(self.now, binds=self.draw(st.integers(0, 3)) > 0)

    def read(self) -> None:
        bound = self.pair.slices
        wanted = bound if self.draw(st.booleans()) else bound[:1]
        self.pair.read(wanted, ranges=lambda it: (it.lower, it.upper))

    def settle(self) -> None:
        """Read all that there is in the end."""
        self.now += timedelta(hours=2)
        while self.pair.probe(self.now, binds=True):
            pass
        self.pair.read(self.pair.slices, ranges=lambda it: (it.lower, it.upper))

    def acknowledge(self) -> None:
        self.pair.both(lambda source, bound, _side: source.acknowledge(bound.frontier))

    def restart(self) -> None:
        """Begin another run, which holds no file open."""
        self.pair.real = FileSource(**self.options)
        self.pair.simulated = read_from(FileSource(**self.options), self.folder)
        self.pair.restart()

    def wait(self) -> None:
        self.now += timedelta(seconds=self.draw(st.sampled_from([1, 3, 4000])))

    def live(self) -> None:
        """Let something happen, or ask something, of what is possible now."""
        steps: list[Callable[[], None]] = [*[self.append] * 6, *[self.probe] * 8, *[self.wait] * 2]
        steps += [self.acknowledge, self.restart] + [self.read] * (6 if self.pair.slices else 0)
        if self.folder.paths:
            steps += [self.mend, self.mend, self.rotate, self.rotate, self.copy_and_truncate, self.compress]
            steps += [self.shrink, self.rewrite, self.replace, self.remove, self.leave]
        if self.lost:
            steps += [self.bring_back, self.bring_back]
        self.draw(st.sampled_from(steps))()


@deep(60)
@given(st.data())
def test_a_folder_in_memory_is_read_as_a_real_one(data: st.DataObject) -> None:
    with TemporaryDirectory() as place:
        life = FolderLife(Path(place, "landing"), data.draw)
        life.append()
        for _ in range(STEPS):
            life.live()
            life.now += timedelta(microseconds=1)
        life.settle()
