"""TG-0801 and TG-0802: secrets, which a configuration only refers to."""

from __future__ import annotations

from tidegauge.errors.base import TidegaugeError, Transient

__all__ = ["SecretInClear", "SecretUnavailable"]


class SecretInClear(TidegaugeError):
    """A secret that was written into a configuration. The secret itself is not shown."""

    code = "TG-0801"
    what = "the setting {setting!r} is a secret, and was given in the clear"
    cause = "a password or a key in the program, from where it gets into repositories, logs and plans"
    remedy = (
        "put it into an environment variable or a file and refer to it: {setting!r}: 'env:NAME' or 'file:/path/to/it'"
    )


class SecretUnavailable(Transient):
    """A reference to a secret that does not exist."""

    code = "TG-0802"
    what = "the setting {setting!r} refers to {reference!r}, and {problem}"
    cause = "the variable or the file does not exist on this machine, or the process may not read it"
    remedy = "set it for the driver and for the tasks, which may run on other machines"
