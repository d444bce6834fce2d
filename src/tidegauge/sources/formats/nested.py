"""What a type is made of: the question that readers ask before they look at values.

>>> places = pa.list_(pa.struct([("at", pa.map_(pa.string(), pa.decimal128(9, 2)))]))
>>> contains(places, pa.types.is_decimal), contains(places, pa.types.is_map), contains(places, pa.types.is_date)
(True, True, False)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

__all__ = ["contains"]


def contains(of: Any, wanted: Callable[[Any], bool]) -> bool:
    """Whether a type is such a one, or has one inside: in a struct, in a list, or among the items of a map."""
    if wanted(of):
        return True
    if pa.types.is_struct(of):
        return any(contains(inner.type, wanted) for inner in of)
    if pa.types.is_map(of):
        return contains(of.item_type, wanted)
    return bool(pa.types.is_list(of)) and contains(of.value_type, wanted)
