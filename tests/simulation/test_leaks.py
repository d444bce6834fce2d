"""What a driver leaves behind is found, whatever it is."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

import pytest
from tests.simulation import unseen
from tests.simulation.test_faults import lived

from tidegauge.errors.simulation import SimulationFailed
from tidegauge.flow import runner
from tidegauge.flow.runner import Runner
from tidegauge.sinks.protocol import Table
from tidegauge.testing.simulation.ground import Ground
from tidegauge.testing.simulation.plan import Act, Fault, Plan
from tidegauge.testing.simulation.tables.sink import SimulatedTable
from tidegauge.testing.simulation.tables.stager import SimulatedStager
from tidegauge.testing.simulation.world import World

Patch = pytest.MonkeyPatch


def test_a_lease_that_is_not_given_back(monkeypatch: Patch) -> None:
    monkeypatch.setattr(runner, "_give_back", lambda _lease: None)
    with pytest.raises(SimulationFailed, match="a driver that stops gives its lease back"):
        lived()


def test_a_hold_that_nobody_releases(monkeypatch: Patch) -> None:
    register = Runner._begin

    def holding(self: Runner, tables: Mapping[str, Table]) -> None:
        register(self, tables)
        self._store.hold("shop", "a reader that is gone", 0)

    monkeypatch.setattr(Runner, "_begin", holding)
    with pytest.raises(SimulationFailed, match=r"without an owner\n.*a reader that is gone"):
        lived()


@pytest.fixture
def over() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_a_thread_that_goes_on_after_its_driver(monkeypatch: Patch, over: threading.Event) -> None:
    close = Runner.close

    def leaving(self: Runner) -> None:
        close(self)
        threading.Thread(target=over.wait, name="tidegauge-forgotten", daemon=True).start()

    monkeypatch.setattr(Runner, "close", leaving)
    with pytest.raises(SimulationFailed, match=r"leaves no thread behind\n.*tidegauge-forgotten"):
        lived()


def test_work_that_never_ends_beside_a_driver_that_has(monkeypatch: Patch) -> None:
    def begin(self: Runner, tables: Mapping[str, Table]) -> None:
        given(self, tables)
        self._setup.spawn(lambda: self.env.sleep(1_000.0))

    given = Runner._begin
    monkeypatch.setattr(Runner, "_begin", begin)
    with pytest.raises(SimulationFailed, match="nothing of a driver goes on after its end"):
        lived()


def nothing(*_given: object) -> None:
    return None


@pytest.mark.parametrize(
    ("of", "name", "fault", "acts"),
    [
        (SimulatedStager, "abort", Fault("error", "orders: close", 1), ()),
        (SimulatedTable, "sweep", Fault("crash", "orders: closed", 2), (Act(4.0, "append", "orders", 1),)),
    ],
)
def test_staged_files_that_nobody_removes(
    monkeypatch: Patch, of: type, name: str, fault: Fault, acts: tuple[Act, ...]
) -> None:
    lived(fault, acts=acts)
    monkeypatch.setattr(of, name, nothing)
    with pytest.raises(SimulationFailed, match=r"no staged file is left over\n.* of orders"):
        lived(fault, acts=acts)


def test_files_that_the_plan_of_a_failed_output_has_are_kept_for_its_next_run() -> None:
    acts = [*(Act(0.3 + n / 2, "append", "lines", 5) for n in range(8)), Act(6.0, "remake", "lines", 5)]
    acts += [Act(6.3, "truncate", "lines", 10), Act(8.5, "stop", "", 5)]
    world = World(Ground.of(unseen.make_flow), Plan(2, 9.0, tuple(acts), (), unit=1))
    world.run()
    assert world.ledger.failed_outputs() == {"lines"}
    assert world.lives[-1].error is None
    [staged] = world.ledger.ask("SELECT count(*) FROM units WHERE output = 'lines' AND rows > 0")
    assert staged > (0,)
    assert world.lake.tables["lines"].staged
