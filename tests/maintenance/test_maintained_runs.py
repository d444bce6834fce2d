"""`maintain=` as part of a run: tables are packed beside the driver, and what goes wrong there ends no run."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.maintenance.lives import check, make
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.errors.flow import InvalidArgument

LOCAL = tg.LocalEngine(threads=1)


def test_tables_are_packed_while_the_flow_runs_and_all_epochs_are_there(tmp_path: Path) -> None:
    flow = make(tmp_path, rows=None)

    def operations() -> list[str]:
        return [str(entry["operation"]) for entry in DeltaTable(str(tmp_path / "all")).history()]

    epoch: int | None = None
    with flow.start(engine=LOCAL, maintain=0.02):
        for _ in range(5):
            epoch = flow.tick()
            eventually(lambda epoch=epoch: tg.status(flow).published > epoch)  # type: ignore[misc]
        eventually(lambda: "OPTIMIZE" in operations())
    assert epoch == 4
    for one in range(5):
        check(flow, as_of=one)
    assert tg.verify(flow).problems == ()


def test_maintenance_that_fails_is_logged_once_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    flow, tries = make(tmp_path, rows=None), list[None]()

    def failing(*_: object, **__: object) -> None:
        tries.append(None)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tidegauge.maintenance.maintain.maintain_until", failing)
    with caplog.at_level(logging.WARNING), flow.start(engine=LOCAL, maintain=0.01) as run:
        flow.tick()
        eventually(lambda: len(tries) > 2)
        run.stop()
        assert run.wait().why == "stopped"
    assert [record.message.count("No space left") for record in caplog.records] == [1]


@pytest.mark.parametrize("wrong", [0, -1.0, float("inf"), float("nan"), True, "60"])
def test_other_intervals_than_positive_numbers_of_seconds_are_refused(tmp_path: Path, wrong: float) -> None:
    flow = make(tmp_path, rows=3)
    with pytest.raises(InvalidArgument, match="maintain"):
        flow.run("caught-up", engine=LOCAL, maintain=wrong)
    with pytest.raises(InvalidArgument, match="maintain"):
        flow.start("caught-up", engine=LOCAL, maintain=wrong)
    assert not (tmp_path / "many.db").exists()
