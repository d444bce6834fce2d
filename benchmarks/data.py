"""The rows that are measured with: JSON lines of about 110 bytes, an order each.

>>> lines(0, 1).decode()
'{"id":0,"user":"user-000000","amount":0.00,"at":"2026-11-01T00:00:00.000Z","page":"/catalogue/shelf/0"}\\n'
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

__all__ = ["COLUMNS", "LARGE", "PAGES", "land", "lines", "write_files"]

COLUMNS: Final = "id long, user string, amount double, at timestamp, page string"
LARGE: Final = ("amount > 900", ("id", "user", "amount * 1.2 AS gross"))
PAGES: Final = ("page LIKE '/checkout%'", ("id", "at", "page"))
"""The filter and the selection of the second and the third output, each of which keeps about a tenth of the rows."""

_ROWS: Final = 20_000
_PAGES: Final = (
    *("catalogue/shelf",) * 3,
    *("catalogue/item",) * 2,
    *("search/results",) * 2,
    *("account/orders",) * 2,
    "checkout/basket",
)


def _line(number: int) -> str:
    mixed = number * 2654435761 % (1 << 32)  # Knuth's multiplicative hash: spread, and the same on every machine
    day, hour, minute, second = 1 + mixed // 1440 % 28, mixed // 60 % 24, mixed // 17 % 60, mixed % 60
    page = _PAGES[mixed // 7 % len(_PAGES)]
    return (
        f'{{"id":{number},"user":"user-{mixed % 500_000:06d}","amount":{mixed // 11 % 100_000 / 100:.2f},'
        f'"at":"2026-11-{day:02d}T{hour:02d}:{minute:02d}:{second:02d}.{mixed % 1000:03d}Z",'
        f'"page":"/{page}/{mixed % 10_000}"}}\n'
    )


def lines(first: int, count: int) -> bytes:
    """Return the rows `first` to `first + count - 1`."""
    return "".join(map(_line, range(first, first + count))).encode()


def land(folder: Path, name: str, content: bytes) -> None:
    """Put a whole file into a folder at once: written beside it, then renamed into it."""
    beside = folder.parent / f"{folder.name}-{name}.writing"
    beside.write_bytes(content)
    beside.rename(folder / name)


def write_files(folder: Path, *, files: int, total: int) -> int:
    """Write `files` files of `total` bytes together (rounded up to whole chunks of rows); return the rows."""
    folder.mkdir(parents=True)
    first = 0
    for number in range(files):
        with open(folder / f"orders-{number:03d}.jsonl", "wb") as out:
            while out.tell() < total // files:
                out.write(lines(first, _ROWS))
                first += _ROWS
    return first
