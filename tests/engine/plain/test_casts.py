"""A text is cast to what it is, whatever stands beside it: whole batches of digits go a shorter way."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegauge.engine.plain import chain
from tidegauge.job.plan import Select

KINDS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
EDGES = [str(sign * ((1 << bits) + more)) for bits in (7, 15, 31, 63) for sign in (1, -1) for more in (-1, 0, 1)]
TEXTS = st.one_of(
    st.none(),
    st.integers(-(1 << 64), 1 << 64).map(str),
    st.integers(-200, 200).map(str),
    st.sampled_from(
        [
            *EDGES,
            "",
            "-",
            "+5",
            "--5",
            "-0",
            "007",
            "-007",
            " 5",
            "5\n",
            "5\0",
            "5.",
            "1e3",
            "٣",
            "0x5",
            "00000000000000000000007",
        ]
    ),
)


def cast(texts: list[str | None], kind: str) -> list[int | None]:
    batch = pa.record_batch({"text": pa.array(texts, pa.string())})
    made = chain([Select((f"try_cast(text AS {kind}) AS n",))], [["n"]], batch.schema)
    assert made is not None
    found: list[int | None] = made(batch)["n"].to_pylist()
    return found


@pytest.mark.parametrize("kind", KINDS)
@given(texts=st.lists(TEXTS, max_size=6))
@example(texts=[None])
@example(texts=["--5"])
@example(texts=["-5", "12"])
@example(texts=["007", "-0", "-007"])
@example(texts=["12", "127", "128", "-128", "-129"])
def test_p_a_text_is_cast_whatever_stands_beside_it(kind: str, texts: list[str | None]) -> None:
    beside = cast([*texts, " \t"], kind)  # which is no number, and nothing that Arrow reads
    assert cast(texts, kind) == beside[:-1]
    assert beside[-1] is None
    assert [cast([text], kind)[0] for text in texts] == beside[:-1]


@pytest.mark.parametrize(("kind", "bits"), KINDS.items())
def test_as_many_digits_as_always_fit_are_read_and_more_where_they_fit(kind: str, bits: int) -> None:
    most = 1 << (bits - 1)
    assert cast([str(most - 1), str(-most)], kind) == [most - 1, -most]
    assert cast([str(most), str(-most - 1)], kind) == [None, None]
