"""File systems of a fixed size, which can be full, and disks that die. Only for who may mount."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

__all__ = ["Disk", "disk_image", "fill", "forbidden", "make_room", "small_disk"]

_SHUT_DOWN = 0x8004587D
"""The request to a file system to be as if its disk were gone."""
_AT_ONCE = struct.pack("I", 2)
_GET_FLAGS, _SET_FLAGS, _IMMUTABLE = 0x80086601, 0x40086602, 0x10


@contextmanager
def small_disk(place: Path, *, size: str) -> Iterator[Path]:
    """A file system in memory at a place that is not there yet."""
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def fill(disk: Path) -> None:
    """Take all the room that is left."""
    with suppress(OSError), (disk / "ballast").open("ab", buffering=0) as out:
        while out.write(bytes(4096)):
            pass


def make_room(disk: Path) -> None:
    """Give back what `fill` has taken."""
    (disk / "ballast").unlink(missing_ok=True)


@contextmanager
def forbidden(folder: Path) -> Iterator[None]:
    """A folder in which nobody may write, not even root, who may write where the permissions say no."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        if not _made_immutable(opened, True):
            folder.chmod(0o500)
            if os.access(folder, os.W_OK):
                pytest.skip("no folder can be forbidden to this user here")
        yield
    finally:
        _made_immutable(opened, False)
        folder.chmod(0o700)
        os.close(opened)


def _made_immutable(folder: int, wanted: bool) -> bool:
    """Set or clear the flag, and return whether that is possible: the file system has it, and we may set it."""
    try:
        [flags] = struct.unpack("l", fcntl.ioctl(folder, _GET_FLAGS, bytes(8)))
        fcntl.ioctl(folder, _SET_FLAGS, struct.pack("l", flags | _IMMUTABLE if wanted else flags & ~_IMMUTABLE))
    except OSError:
        return False
    return True


class Disk:
    """An ext4 file system in an image, attached as a block device and mounted at a place."""

    def __init__(self, image: Path, place: Path) -> None:
        self.image, self.place = image, place
        self.devices: list[str] = []

    def attach_anew(self, image: Path | None = None) -> None:
        """Attach the image, or another one, as a device of another number."""
        found = _run("losetup", "--find", "--show", str(image or self.image))
        self.devices.append(found.strip())

    def mount(self) -> None:
        _run("mount", self.devices[-1], str(self.place))

    def unmount(self, *, lazy: bool = False) -> None:
        """Unmount the disk: lazily, though files of it are open, or in truth."""
        _run("umount", *(["-l"] if lazy else []), str(self.place))

    def die(self) -> None:
        """From now on everything that needs the disk is an I/O error, until it is unmounted."""
        folder = os.open(self.place, os.O_RDONLY)
        try:
            fcntl.ioctl(folder, _SHUT_DOWN, _AT_ONCE)
        finally:
            os.close(folder)

    def turn_read_only(self) -> None:
        """From now on nothing can be written, as after an error of the disk that its file system was careful of."""
        _run("mount", "-o", "remount,abort,errors=remount-ro", str(self.place))

    def mend(self) -> None:
        """Unmount the disk and mount it again, as somebody who has seen to it."""
        self.unmount()
        self.mount()

    def copy(self, to: Path) -> None:
        """Copy the present state of the disk."""
        _run("fsfreeze", "--freeze", str(self.place))
        try:
            shutil.copyfile(self.image, to)
        finally:
            _run("fsfreeze", "--unfreeze", str(self.place))


@contextmanager
def disk_image(image: Path, place: Path) -> Iterator[Disk]:
    """A disk in a file that is not there yet, mounted at a place that is not there yet."""
    with image.open("wb") as file:
        file.truncate(16 << 20)
    place.mkdir()
    disk = Disk(image, place)
    try:
        _run("mkfs.ext4", "-q", str(image))
        disk.attach_anew()
        disk.mount()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("nothing can be mounted here")
    try:
        yield disk
    finally:
        for device in disk.devices:
            subprocess.run(["umount", "-l", place], check=False, capture_output=True)
            subprocess.run(["losetup", "--detach", device], check=False, capture_output=True)


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
