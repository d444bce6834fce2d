"""The work that a table has before a commit is done by tasks of every engine, which carry files and errors alike."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

from tidegauge.engine import LocalEngine, SparkEngine
from tidegauge.errors.kafkasink import LastUndecided
from tidegauge.errors.sinks import MergeFailed
from tidegauge.job.plan import Engine
from tidegauge.sinks import StagedFile

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]


@pytest.fixture(params=["local", pytest.param("spark", marks=[pytest.mark.spark])])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    if request.param == "local":
        made = LocalEngine(threads=2)
        yield made
        made.close()
    else:
        yield request.getfixturevalue("spark")


def staged(number: int) -> list[StagedFile]:
    return [StagedFile(f"part-{number}.parquet", number, 9, 0, number, statistics='{"numRecords":1}')]


def undecided() -> list[StagedFile]:
    raise LastUndecided(epoch=7, key="'ada'", topic="lake/users")


def full() -> list[StagedFile]:
    raise OSError(28, "No space left on device", "/lake/users/part-0.parquet")


def broken() -> list[StagedFile]:
    raise ZeroDivisionError("a bug")


def test_tasks_stage_files_in_their_order(engine: Engine) -> None:
    assert engine.work([partial(staged, number) for number in range(7)]) == [staged(number) for number in range(7)]


def test_errors_of_ours_and_of_the_disk_are_what_they_were(engine: Engine) -> None:
    with pytest.raises(LastUndecided, match="'ada'") as caught:
        engine.work([partial(staged, 1), undecided])
    assert caught.value.evidence["epoch"] == 7
    with pytest.raises(OSError, match="No space left") as disk:
        engine.work([full, partial(staged, 1)])
    assert (disk.value.errno, disk.value.filename) == (28, "/lake/users/part-0.parquet")


@pytest.mark.spark
def test_what_spark_does_not_finish_may_be_tried_again(spark: SparkEngine, tmp_path: Path) -> None:
    with pytest.raises(MergeFailed, match="a bug"):
        spark.work([broken])

    def dies() -> list[StagedFile]:
        if not (tmp_path / "died").exists():
            (tmp_path / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return staged(1)

    with pytest.raises(MergeFailed):  # `local[2]` tries no task again
        spark.work([dies])
    assert spark.work([dies]) == [staged(1)]


def test_an_engine_that_is_closed_gives_up_what_has_not_begun_and_sees_the_rest_through() -> None:
    engine, begun, going, ended = LocalEngine(threads=1), threading.Event(), threading.Event(), list[int]()

    def slow() -> list[StagedFile]:
        begun.set()
        assert going.wait(30)
        ended.append(1)
        return []

    found: list[Any] = []

    def work() -> None:
        try:
            engine.work([slow, slow, slow])
        except MergeFailed as error:
            found.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    assert begun.wait(30)
    closer = threading.Thread(target=engine.close)
    closer.start()
    while not engine._closed.is_set():
        pass
    going.set()
    closer.join(30)
    worker.join(30)
    assert ended == [1]
    assert len(found) == 1
    with pytest.raises(MergeFailed, match="closed"):
        engine.work([slow, slow])
