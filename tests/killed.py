"""Processes that are killed at an instant, and what their lives come to."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

from tidegauge.errors.base import TidegaugeError

__all__ = ["killing", "live_and_end"]


def killing(point: str | None, nth: int) -> Callable[[str], None]:
    """Return what hears of each instant, and kills this process (SIGKILL) at the point, once it passed nth times."""
    left = nth

    def strike(name: str) -> None:
        nonlocal left
        if name == point:
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return strike


def live_and_end(life: Callable[[], object]) -> NoReturn:
    """End a forked process with its life: 0 if it went well, 1 for an error of Tidegauge's own, 70 for any other."""
    code = 70
    try:
        life()
        code = 0
    except TidegaugeError as error:
        code = 1
        print(error, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
