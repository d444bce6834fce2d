"""`bucket`: a place in an object store, of each kind in turn: S3, Azure's blobs, Google's objects."""

from __future__ import annotations

from typing import Any

import pytest

__all__ = ["bucket"]


@pytest.fixture(params=["lake", "azure", "google"])
def bucket(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)
