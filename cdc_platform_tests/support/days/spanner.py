"""A day of the simulated bank: churn, all faults, schema changes, whole rows and partial updates."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from cdc_platform.lake.state.control import load_lineage
from cdc_platform.lake.state.cuts import newest_cut
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.simulator.server import Simulator
from cdc_platform.simulator.wire.simulator_settings import Dialect
from cdc_platform_tests.support.days.day import MINUTE_S, with_short_minutes
from cdc_platform_tests.support.workloads.spanner import CHANGES_PER_TRANSACTION, BankWorkload, Clock
from cdc_platform_tests.support.workloads.traffic import SECOND, Traffic, check_log
from cdc_platform_tests.support.workloads.workload import Place

PARTITIONS: Final = 12
CHURN_S: Final = 20.0
FAULTS_SHARE: Final = 0.02


@dataclass
class BankDay(BankWorkload):
    """A minute of the bank's transactions for each cycle."""

    checked_micros: int | None = None
    """Up to where the log has been compared with the history."""
    ended: set[str] = field(default_factory=set)
    """Tokens of partitions that have ended."""

    @property
    def incidents(self) -> Counter[str]:
        """How often queries failed, partitions ended, and the schema changed."""
        faults = self.simulator.database.faults.incidents
        schema = self.simulator.history.schemas.at(self.clock.micros)
        counts = Counter({f"queries: {fault.value}": times for fault, times in faults.items()})
        return counts + Counter({"schema changes": schema.version, "partitions ended": len(self.ended)})

    def send(self) -> None:
        """Let a minute pass."""
        self.clock.micros += MINUTE_S * SECOND

    def differences(self, pipeline: Pipeline) -> list[str]:
        """Compare the tables with the history, and the log since it was compared last."""
        differences = super().differences(pipeline)
        cut, lineage = newest_cut(pipeline.lake), load_lineage(pipeline.lake)
        if differences or cut is None or lineage is None:
            return differences
        self.ended |= {token for token, partition in lineage.partitions.items() if partition.is_finished}
        try:
            check_log(self.simulator, pipeline, cut, self.checked_micros)
        except AssertionError as error:
            differences = [str(error)]
        self.checked_micros = cut.position_micros
        return differences


@contextmanager
def open_bank_day(dialect: Dialect, place: Place, schema_change_every: int) -> Iterator[BankDay]:
    """Provide a day of the bank, which begins with a copy.

    The schema changes go in turn through all kinds, and through all value capture types.
    """
    rate = place.changes / CHANGES_PER_TRANSACTION / MINUTE_S
    traffic = Traffic(place.seed, PARTITIONS, place.lake, dialect, rate)
    traffic.churn_s, traffic.faults_share = CHURN_S, FAULTS_SHARE
    traffic.schema_change_every_s = schema_change_every * float(MINUTE_S)
    clock = Clock(traffic.begin_micros)
    with Simulator(traffic.simulated, clock=clock.now) as simulator:
        settings = with_short_minutes(place.settings(traffic.source(simulator), "accounts"))
        yield BankDay(settings, simulator, clock, checks_log=False)
