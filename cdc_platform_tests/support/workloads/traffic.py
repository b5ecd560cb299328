"""Simulated traffic in fast motion: many partitions, all faults, and a reconciliation at every cut."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

from pyspark.sql import SparkSession

from cdc_platform.errors import CdcError
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.copies import load_plans
from cdc_platform.lake.state.cuts import Cut
from cdc_platform.model.base.stored_names import LOG
from cdc_platform.model.base.timestamps import to_rfc3339
from cdc_platform.model.stream.records import ValueCaptureType
from cdc_platform.pipeline.checks.check_result import EVERYTHING
from cdc_platform.pipeline.checks.invariants import checks_of
from cdc_platform.pipeline.checks.reconciliation import Reconciliation, reconcile_tables
from cdc_platform.pipeline.checks.source_checks import describe_reconciliation
from cdc_platform.pipeline.cycle import run_cycle
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.simulator.server import Simulator
from cdc_platform.simulator.stream.records import watched_changes
from cdc_platform.simulator.wire.simulator_settings import (
    PASSING_FAULTS,
    Dialect,
    PartitionMode,
    RecordSequences,
    RootParents,
    SchemaChange,
    SchemaChangeKind,
    SimulatorSettings,
)
from cdc_platform.sources.spanner.spanner_settings import SpannerSettings

ORIGIN: Final = 1_790_000_000_000_000
SECOND: Final = 1_000_000
EACH_OPENED_WITH: Final = 1000
"""Opening balance of each account: the sum of balances never changes."""
MAX_TRIES: Final = 5
"""A cycle that no window of gets through is tried again, as continuous running does."""

GroupCounts = list[tuple[str, int]]
"""Transactions in their order: id, and number of changes."""


def changing_columns(every_s: float, laps: int) -> tuple[SchemaChange, ...]:
    """Return schema changes that leave what is watched as it is, however long the cycles are that meet them.

    Of a table that the change stream does not watch for a while, between two cycles, nothing shows.
    """
    kinds = SchemaChangeKind
    changes = [
        change
        for lap in range(laps)
        for change in (
            (kinds.ADD_COLUMN, "transfers", f"memo_{lap}", "STRING(MAX)"),
            (kinds.RETYPE_COLUMN, "transfers", "note", ("BYTES(MAX)", "STRING(MAX)")[lap % 2]),
            (kinds.ADD_TABLE, f"audit_{lap}", "", ""),
            (kinds.DROP_COLUMN, "transfers", f"memo_{lap}", ""),
        )
    ]
    return tuple(SchemaChange(number * every_s, *change) for number, change in enumerate(changes, start=1))


@dataclass
class Traffic:
    """A pipeline that reads a simulator whose clock stands still during a cycle."""

    seed: int
    partitions: int
    lake: LakeSettings
    dialect: Dialect = Dialect.GOOGLESQL
    rate: float = 100.0
    churn_s: float = 2.0
    faults_share: float = 0.03
    schema_change_every_s: float | None = None
    capture: ValueCaptureType = ValueCaptureType.NEW_ROW
    partition_mode: PartitionMode = PartitionMode.IMMUTABLE_KEY_RANGE
    placements: tuple[str, ...] = ()
    now_micros: int = ORIGIN
    cuts: int = 0
    retries: int = 0
    transactions: int = 0
    checked_micros: int | None = None
    missing: frozenset[str] = frozenset()
    """Tables that the newest cut does not have although they were watched then."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Of the last cycle, whole and by step."""

    @property
    def simulated(self) -> SimulatorSettings:
        """The traffic: every `churn_s` a partition splits, merges or moves, once the first ones have aged."""
        return SimulatorSettings(
            seed=self.seed,
            dialect=self.dialect,
            rate=self.rate,
            partitions=self.partitions,
            partition_life_s=self.partitions * self.churn_s / 1.5,
            accounts=1000,
            keep_transfers=3000,
            all_types=True,
            schema_change_every_s=self.schema_change_every_s,
            value_capture_type=self.capture,
            partition_mode=self.partition_mode,
            placements=self.placements,
            faults=PASSING_FAULTS,
            fault_probability=self.faults_share,
            stall_s=3.0,
            origin_micros=ORIGIN,
            root_parents=RootParents.NULL,
            record_sequences=RecordSequences.MIXED,
        )

    @property
    def begin_micros(self) -> int:
        """When the first partitions have aged."""
        return ORIGIN + int(2 * self.simulated.partition_life_s * SECOND)

    def source(self, simulator: Simulator) -> SpannerSettings:
        """Return the settings of a source that begins at the present, and is impatient with faults."""
        names: dict[str, Any] = simulator.names()
        del names["start_timestamp"]
        return SpannerSettings(**names, heartbeat_ms=500, stuck_after_s=1.0, backoff_initial_s=0.02)

    @contextmanager
    def open(self) -> Iterator[tuple[Simulator, Pipeline]]:
        """Provide both; the pipeline begins with a copy, when the partitions churn."""
        self.now_micros = self.begin_micros
        with Simulator(self.simulated, clock=lambda: self.now_micros) as simulator:
            name = f"traffic_{self.dialect.value}_{self.seed}"
            pipeline = open_pipeline(PipelineSettings(name, self.source(simulator), self.lake))
            try:
                yield simulator, pipeline
            finally:
                pipeline.source.close()

    def cycle(self, simulator: Simulator, pipeline: Pipeline, spark: SparkSession, seconds: float) -> None:
        """Let time pass, run a cycle, and check what it publishes."""
        self.now_micros += int(seconds * SECOND)
        begin = time.perf_counter()
        outcome = self._run(pipeline, spark)
        self.seconds = {"cycle": time.perf_counter() - begin, **outcome.seconds}
        if outcome.cut is not None and outcome.cut.position_micros != self.checked_micros:
            missing = check_cut(simulator, pipeline, outcome.cut)
            uncopied = missing & self.missing - load_plans(pipeline.lake).keys()
            assert uncopied == set(), f"tables that cut {outcome.cut.cut} lacks, without a copy"
            self.missing = missing
            self.transactions += check_log(simulator, pipeline, outcome.cut, self.checked_micros)
            self.checked_micros, self.cuts = outcome.cut.position_micros, self.cuts + 1

    def catch_up(self, simulator: Simulator, pipeline: Pipeline, spark: SparkSession) -> None:
        """Let no time pass until a cut holds all there is: what has failed is read by the next cycle."""
        for _ in range(MAX_TRIES):
            # A cut lies a microsecond before the clock that its cycle saw.
            if self.checked_micros == self.now_micros - 1:
                return
            self.cycle(simulator, pipeline, spark, 0)
        raise AssertionError(f"the newest cut is at {self.checked_micros}, the clock at {self.now_micros}")

    def _run(self, pipeline: Pipeline, spark: SparkSession) -> Any:
        for remaining_tries in reversed(range(MAX_TRIES)):
            try:
                return run_cycle(pipeline, spark)
            except CdcError as error:
                if not error.retryable or not remaining_tries:
                    raise
                self.retries += 1
        raise AssertionError("the last try raises or returns")


def check_cut(simulator: Simulator, pipeline: Pipeline, cut: Cut) -> frozenset[str]:
    """Compare all tables at a cut with the history, and the sum of the bank's balances.

    Returns:
        the tables that were watched then, and that no cut has yet.
    """
    reconciliations, unwatched = reconcile_tables(pipeline, cut)
    different = [
        describe_reconciliation(reconciliation)
        for reconciliation in reconciliations
        if not is_right(simulator, reconciliation)
    ]
    assert different == [], f"tables at cut {cut.cut}"
    watched = {
        name: table.is_watched
        for name, table in simulator.history.schemas.at(cut.position_micros).tables.items()
    }
    assert {name for name in cut.tables if not watched[name]} == set(unwatched), f"unwatched at cut {cut.cut}"
    accounts = pipeline.lake.table("accounts")
    assert accounts is not None
    scan = accounts.scan(snapshot_id=cut.tables["accounts"], selected_fields=("balance",))
    total = sum(scan.to_arrow()["balance"].to_pylist())
    assert simulator.settings.accounts * EACH_OPENED_WITH == total, f"sum of balances at cut {cut.cut}"
    return frozenset(name for name in watched if watched[name]) - {
        reconciliation.table for reconciliation in reconciliations
    }


def is_right(simulator: Simulator, reconciliation: Reconciliation) -> bool:
    """Return whether a table equals the source, except for times when the stream did not watch it."""
    if simulator.settings.schema_change_every_s is None:
        return reconciliation.is_equal and not reconciliation.uncompared
    return (
        reconciliation.holds
        if reconciliation.table.startswith("audit_")
        else reconciliation.is_equal and {*reconciliation.uncompared} <= {"note"}
    )


def check_log(simulator: Simulator, pipeline: Pipeline, cut: Cut, after_micros: int | None) -> int:
    """Compare the log since the last cut with the history: every transaction, whole, once, in its order.

    Returns:
        how many transactions it holds; none before the first cut, which begins with a copy.
    """
    if after_micros is None:
        return 0
    history, last = simulator.history, cut.position_micros
    true = sorted(
        (
            transaction.commit_micros,
            transaction.id,
            sum(1 for _ in watched_changes(transaction, history.schemas.at(transaction.commit_micros))),
        )
        for number in history.blocks(after_micros, last)
        for transaction in history.block(number)
        if after_micros < transaction.commit_micros <= last
    )
    expected: GroupCounts = [(identifier, changes) for _, identifier, changes in true if changes]
    log = pipeline.lake.system_table(LOG).scan(
        row_filter=f"commit_timestamp > '{_iso(after_micros)}' and commit_timestamp <= '{_iso(last)}'",
        selected_fields=("ordinal", "transaction_id", "commit_timestamp"),
    )
    rows = sorted((row["ordinal"], row["transaction_id"]) for row in log.to_arrow().to_pylist())
    counts: GroupCounts = [
        (name, len(list(group))) for name, group in groupby(rows, key=lambda row: str(row[1]))
    ]
    assert expected == counts, f"transactions of cut {cut.cut}"
    return len(counts)


def check_end(pipeline: Pipeline, spark: SparkSession) -> None:
    """Run every check of the platform over the whole lake."""
    for check in checks_of(pipeline.capabilities):
        if not check.is_warning:
            result = check.run(pipeline, spark, EVERYTHING)
            assert result.passed, f"{check.name}: {result.summary}"


def _iso(micros: int) -> str:
    return to_rfc3339(micros)[:-1] + "+00:00"
