"""A steady workload of the simulated bank, whose clock stands still while a cycle runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from cdc_platform.lake.state.cuts import newest_cut
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.simulator.server import Simulator
from cdc_platform.simulator.wire.simulator_settings import SimulatorSettings
from cdc_platform.sources.spanner.spanner_settings import SpannerSettings
from cdc_platform_tests.support.workloads.traffic import ORIGIN, SECOND, check_cut, check_log
from cdc_platform_tests.support.workloads.workload import Place

CHANGES_PER_TRANSACTION: Final = 3
PARTITIONS: Final = 8
PARTITION_LIFE_S: Final = 20.0
ACCOUNTS: Final = 500
KEPT_TRANSFERS: Final = 1000


@dataclass
class Clock:
    """A clock that moves only when a test moves it."""

    micros: int = ORIGIN + SECOND

    def now(self) -> int:
        """Return its time."""
        return self.micros


@dataclass
class BankWorkload:
    """A second of the bank's transactions for each cycle.

    Args:
        settings: of the pipeline.
        simulator: holds the true history.
        clock: of the simulator.
        checks_log: whether the log has all transactions in their order: not those before a copy, and replayed
            ones behind the others.
    """

    settings: PipelineSettings
    simulator: Simulator
    clock: Clock
    checks_log: bool = True

    def send(self) -> None:
        """Let a second pass."""
        self.clock.micros += SECOND

    def finish(self) -> None:
        """Do nothing: the simulator keeps nothing back."""

    def differences(self, pipeline: Pipeline) -> list[str]:
        """Compare tables and log at the newest cut with the simulator's history."""
        cut = newest_cut(pipeline.lake)
        if cut is None or cut.position_micros < self.clock.micros - 1:
            return [f"the newest cut does not reach the simulator's clock: {cut}"]
        names = {table.name for table in pipeline.tables}
        # The check of histories covers a history.
        cut = replace(cut, tables={name: at for name, at in cut.tables.items() if name in names})
        try:
            assert check_cut(self.simulator, pipeline, cut) == frozenset()
            assert not self.checks_log or check_log(self.simulator, pipeline, cut, ORIGIN - 1) > 0
        except AssertionError as error:
            return [str(error)]
        return []


@contextmanager
def open_spanner(place: Place, *, has_copies: bool = False, **simulation: Any) -> Iterator[BankWorkload]:
    """Run a simulator, and provide its workload.

    Args:
        place: where the workload runs.
        has_copies: whether the pipeline begins with copies, at a moment when the bank has rows.
        simulation: further settings of the simulator.
    """
    clock = Clock()
    fixed: dict[str, Any] = {
        "seed": place.seed,
        "rate": place.changes / CHANGES_PER_TRANSACTION,
        "partitions": PARTITIONS,
        "partition_life_s": PARTITION_LIFE_S,
        "accounts": ACCOUNTS,
        "keep_transfers": KEPT_TRANSFERS,
        "origin_micros": ORIGIN,
    }
    simulated = SimulatorSettings(**fixed | simulation)
    with Simulator(simulated, clock=clock.now) as simulator:
        names: dict[str, Any] = simulator.names()
        if has_copies:
            del names["start_timestamp"]
        source = SpannerSettings(**names, heartbeat_ms=500)
        yield BankWorkload(place.settings(source, "accounts"), simulator, clock, not has_copies)
