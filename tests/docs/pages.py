"""Pages played as their reader would: files are written, commands run, and what they print is compared.

A page is played in a folder of its own, its blocks in order:

    ```python      whose first line is `# name.py` is written to that file; `# at the end of name.py` is appended;
                   any other runs in one namespace for the page
    ```pycon       is a doctest in the same namespace
    ```console     each line after `$ ` runs in bash; what stands below must be printed, `...` standing for anything
    other kinds    are not played

`<!-- test: skip -->` on the line before a block passes it over; `<!-- test: until TEXT -->` waits until the command
in the background has printed the text.
"""

from __future__ import annotations

import doctest
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.waiting import eventually
from tests.warm import Warm

ROOT = Path(__file__).parents[2]
PATIENCE = 180.0

_FENCE = re.compile(
    r"^(?:<!-- test: (?P<order>[^\n]*?) -->\n)?^```(?P<kind>\w*)[^\n]*\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
_FILE = re.compile(r"# (?P<append>at the end of )?(?P<name>[\w.]+\.(?:py|ini|toml))\n")
_VARIABLE = (
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z)?"), "TIME"),
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "TIME"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "ID"),
    (re.compile(r"\b[0-9a-f]{16}\b"), "FINGERPRINT"),
    (re.compile(r"\b[\w-]+ on [\w.-]+, process \d+"), "SOMEBODY"),
    (re.compile(r"\b\d+\.\d kB"), "SIZE"),
    (re.compile(r"\s+"), " "),
)
_PLAIN = re.compile(r"tidegauge( [\w.,:/+=-]+)*")
_SPARK_STOPS = re.compile(
    r"^Traceback \(most recent call last\):\n(  File \".*pyspark.*\n|    .*\n)*(BrokenPipeError: .*\n?)?",
    re.MULTILINE,
)
"""What the daemon of Spark's Python workers prints now and then when its JVM is gone."""
HOME = "/home/ada/shop"
"""The folder in which the pages say that their reader is."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page, with the line at which it begins."""

    page: Path
    line: int
    kind: str
    text: str
    order: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """Return a page's fenced blocks in order."""
    text = page.read_text()
    return [
        Block(page, text.count("\n", 0, found.start()) + 1, found["kind"], found["text"], found["order"] or "")
        for found in _FENCE.finditer(text)
    ]


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Yield the commands of a console block, each with what it is said to print."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, printed = part.partition("\n")
        while command.endswith("\\"):
            more, _, printed = printed.partition("\n")
            command = command[:-1] + more.strip()
        yield command, printed


def normal(text: str) -> str:
    """Return a text without what differs from run to run."""
    for pattern, name in _VARIABLE:
        text = pattern.sub(name, text)
    return text.strip()


def agrees(expected: str, got: str) -> bool:
    """Whether a command printed what the page says."""
    pattern = re.escape(normal(expected)).replace(r"\.\.\.", ".*").replace(r".*\ ", ".* ?").replace(r"\ .*", " ?.*")
    return re.fullmatch(pattern, normal(got), re.DOTALL) is not None


class Play:
    """One page being played in a folder. `given`: what its reader has in the environment."""

    def __init__(self, page: Path, folder: Path, warm: Warm, given: Mapping[str, str] = MappingProxyType({})) -> None:
        self.page = page
        self.folder = folder
        self.warm = warm
        self.names: dict[str, Any] = {"__name__": "page"}
        self.background: subprocess.Popen[bytes] | None = None
        self.log = folder.parent / f"{folder.name}.log"
        self.environ = {
            **os.environ,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "COLUMNS": "300",
            "NO_COLOR": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            **given,
        }

    def play(self) -> int:
        """Play the whole page; return how many blocks were played."""
        played = 0
        before = Path.cwd()
        os.chdir(self.folder)
        sys.path.insert(0, str(self.folder))
        try:
            for block in blocks(self.page):
                if block.order.startswith("until "):
                    self.wait(block.order.removeprefix("until "))
                if block.order == "skip" or block.kind not in ("python", "pycon", "console"):
                    continue
                getattr(self, block.kind)(block)
                played += 1
        finally:
            os.chdir(before)
            sys.path.remove(str(self.folder))
            self.forget()
            if self.background is not None:
                self.background.kill()
                self.background.wait()
        return played

    def forget(self) -> None:
        """Unload the modules of the page, so that a changed file is read anew."""
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None) or "").startswith(str(self.folder)):
                del sys.modules[name]
        importlib.invalidate_caches()

    def python(self, block: Block) -> None:
        found = _FILE.match(block.text)
        if found is None:
            self.forget()
            exec(compile(block.text, str(block), "exec"), self.names)
        elif found["append"]:
            with (self.folder / found["name"]).open("a") as file:
                file.write("\n" + block.text)
        else:
            (self.folder / found["name"]).write_text(block.text)

    def pycon(self, block: Block) -> None:
        self.forget()
        test = doctest.DocTestParser().get_doctest(block.text, self.names, str(block), str(block), block.line)
        said: list[str] = []
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        runner.run(test, out=said.append, clear_globs=False)
        self.names = test.globs
        assert not said, "".join(said)

    def console(self, block: Block) -> None:
        for command, expected in commands(block.text):
            if command.endswith(" &"):
                self.start(command.removesuffix(" &"))
            elif command.endswith(" %1"):
                self.signal(command)
            else:
                self.command(command, expected, where=str(block))

    def start(self, command: str) -> None:
        assert self.background is None, "one command in the background at a time"
        with self.log.open("wb") as log:
            self.background = subprocess.Popen(
                ["bash", "-c", f"exec {command}"], cwd=self.folder, env=self.environ, stdout=log, stderr=log
            )

    def wait(self, text: str) -> None:
        def otherwise() -> str:
            return f"{text!r} was not printed:\n{self.log.read_text()}"

        def printed() -> bool:
            over = self.background is None or self.background.poll() is not None
            if text in self.log.read_text():
                return True
            assert not over, otherwise()
            return False

        eventually(printed, within=PATIENCE, otherwise=otherwise)

    def signal(self, command: str) -> None:
        assert self.background is not None, command
        subprocess.run(["bash", "-c", command.replace("%1", str(self.background.pid))], check=True)
        self.background.wait(PATIENCE)
        self.background = None

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in bash, or what bash would make of it: our own, without anything that is for a shell."""
        if _PLAIN.fullmatch(command):
            _ours, *words = command.split()
            return self.warm(*words, cwd=self.folder, env=self.environ, timeout=PATIENCE, merged=True)
        return subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def command(self, command: str, expected: str, *, where: str) -> None:
        done = self.run(command)
        got = _SPARK_STOPS.sub("", done.stdout).replace(str(self.folder), HOME)
        fails = "TG-" in expected
        assert (done.returncode != 0) == fails, f"{where}: `{command}` ended with {done.returncode}:\n{got}"
        if expected.strip():
            assert agrees(expected, got), f"{where}: `{command}`\n--- the page says\n{expected}\n--- it prints\n{got}"
