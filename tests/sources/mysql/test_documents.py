"""JSON in MySQL's log becomes the text that the server itself writes of it."""

from __future__ import annotations

import json
import math
import random
import struct
from pathlib import Path
from typing import Any, Final

import pytest
from tests.mysql import MySql
from tests.sources.mysql.store import Store

from tidegauge.sources.mysql.documents import text_of

SAID: Final = [
    "CAST(12.50 AS JSON)",
    "CAST(TIMESTAMP'2015-01-15 23:24:25.12' AS JSON)",
    "CAST(CAST('-12:34:56.5' AS TIME(6)) AS JSON)",
    "CAST(CAST('838:59:59' AS TIME) AS JSON)",
    "JSON_ARRAY(DATE'1000-01-01', TIMESTAMP'9999-12-31 23:59:59.999999', CAST('00:00:00' AS TIME))",
    "JSON_ARRAY(x'00ff', b'101', REPEAT(x'00', 57), REPEAT(x'01', 58), x'')",
    "JSON_ARRAY(-0.05, 1234567890123456789012345678901234567.123, 0.000, -999999999.999999999, 18446744073709551615)",
    "CAST(POINT(1, 2) AS JSON)",
    "JSON_OBJECT('large', REPEAT('ä', 70000), 'one', JSON_ARRAY(1, 70000, -5000000000, NULL, TRUE))",
    "JSON_OBJECT('large', REPEAT(x'41', 300), 'n', JSON_OBJECT())",
    "JSON_ARRAY(REPEAT('x', 127), REPEAT('x', 128), REPEAT('x', 16384))",
    "'null'",
    '\'"\\\\u0000\\\\u001f\\\\u007f\\\\ud83d\\\\ude00 / \\\\\\\\ \\\\""\'',
    "'[]'",
    "NULL",
]


def document(dice: random.Random, depth: int = 0) -> Any:
    match dice.randint(0, 9 if depth < 4 else 6):
        case 0:
            return dice.choice([None, True, False])
        case 1 | 2:
            bits = dice.choice([3, 15, 16, 17, 31, 32, 33, 63])
            return dice.randint(-(2**bits), 2**bits - 1) + dice.choice([0, 0, 2**63 if bits == 63 else 0])
        case 3 | 4:
            found = struct.unpack("<d", dice.randbytes(8))[0] if dice.random() < 0.3 else dice.uniform(-1, 1)
            found = found * 10 ** dice.randint(-20, 25) if abs(found) <= 1 else found
            return found if math.isfinite(found) else 0.5
        case 5 | 6:
            return "".join(dice.choices('aZ9"\\/\n\tä€😀\x00\x01', k=dice.choice([0, 3, 200])))
        case 7 | 8:
            return [document(dice, depth + 1) for _ in range(dice.randint(0, 6))]
        case _:
            return {f"{dice.choice('abä')}{n}": document(dice, depth + 1) for n in range(dice.randint(0, 6))}


@pytest.mark.long
def test_documents_are_the_server_s_own_texts_from_the_first_rows_and_from_the_log(
    mysql8: MySql, tmp_path: Path
) -> None:
    shop = Store(mysql8, tmp_path)
    shop.table("docs", "id int PRIMARY KEY, doc json, made json AS (JSON_ARRAY(doc, id)) STORED")
    dice = random.Random(7)

    def insert(first: int) -> None:
        shop.do(*(f"INSERT INTO docs (id, doc) VALUES ({first + n}, {one})" for n, one in enumerate(SAID)))
        with mysql8.connection(shop.name) as connection, connection.cursor() as cursor:
            rows = [(first + 100 + n, json.dumps(document(dice))) for n in range(400)]
            cursor.executemany("INSERT INTO docs (id, doc) VALUES (%s, %s)", rows)
            connection.commit()

    insert(0)
    shop.catch_up()
    insert(1000)
    shop.do("UPDATE docs SET doc = JSON_SET(doc, '$.new', id) WHERE id > 1000", "DELETE FROM docs WHERE id = 1003")
    flow = shop.catch_up()
    there = shop.there("docs")
    assert len(there) == 2 * (len(SAID) + 400) - 1
    assert shop.held(flow, "docs") == there


def test_a_document_that_is_cut_off_is_none() -> None:
    whole = bytes.fromhex("00 0100 0e00 0b00 0100 0c 0c00 61 02 6869")
    assert text_of(whole) == '{"a": "hi"}'
    for size in range(1, len(whole)):
        with pytest.raises(ValueError, match=r"cut off|kind|length"):
            text_of(whole[:size])
