"""Which errors are of surroundings that come back: a disk that is full or turned read-only, a mount that is away.

They are waited for as long as it takes, by whoever would give up otherwise: a flow that has stopped does not go on by
itself once there is room again. What somebody has to put right in the flow, or in permissions, is not among them.

>>> waited_out(OSError(28, "No space left on device")), waited_out(PermissionError(13, "Permission denied"))
(True, False)
"""

from __future__ import annotations

import errno
import re
from typing import Final

from tidegauge.errors.base import TidegaugeError

__all__ = ["waited_out"]

_PASSING: Final = frozenset(
    {
        *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENXIO, errno.ENODEV, errno.EROFS),
        *(errno.ESTALE, errno.ENOTCONN, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ETIMEDOUT),
    }
)
_NUMBER: Final = re.compile(r"(?i)\b(?:errno|os error)\s+(\d+)")
_TEXT: Final = re.compile("No space left on device|Disk quota exceeded|Read-only file system")
"""How the JVM says it."""


def waited_out(error: BaseException) -> bool:
    """Whether an error is waited for as long as it takes, and not counted.

    What comes from another process, or another language, has its number in its text alone.
    """
    if isinstance(error, TidegaugeError):
        text = str(error.evidence.get("detail", ""))
        return bool(getattr(error, "patient", False)) or _passes(text)
    return (isinstance(error, OSError) and error.errno in _PASSING) or _passes(str(error))


def _passes(text: str) -> bool:
    return any(int(number) in _PASSING for number in _NUMBER.findall(text)) or bool(_TEXT.search(text))
