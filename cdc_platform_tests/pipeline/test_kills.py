"""Cycles that end right after any of their commits, while tables are copied and the schema changes."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import DataFrameWriterV2

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.copies import load_plans
from cdc_platform.lake.state.schema_history import list_schema_events
from cdc_platform.model.schema.schema_events import SchemaChange
from cdc_platform.pipeline.cycle import run_cycle
from cdc_platform.pipeline.opened.pipeline import open_pipeline
from cdc_platform.simulator.wire.simulator_settings import SimulatorSettings
from cdc_platform_tests.support.traffic import SECOND, Traffic, changing_columns, prove_end

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

KILLED_AFTER: Final = (2, 6, 11, 16)
"""Commits after which the runs end, one after the other: in the copy, and ever later in the cycle."""
CHANGING: Final = ("ALTER ", "CALL ", "CREATE TABLE", "DROP ", "MERGE ", "UPDATE ")
"""Beginnings of statements that commit something."""


class Killed(BaseException):
    """The process ends here."""


@dataclass
class ChangingTraffic(Traffic):
    """Traffic whose tables hold rows already, and whose schema changes every second and a half."""

    @property
    def simulated(self) -> SimulatorSettings:
        """The traffic, with what goes on besides."""
        changes = changing_columns(every_s=1.5, laps=8)
        return replace(
            super().simulated, faults=(), all_types=False, preloaded_transfers=300, schema_changes=changes
        )


@dataclass
class Executioner:
    """Counts the commits of a run, and ends it after one of them; no thread commits anything after it."""

    after: int
    commits: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def committing(self, commit: Callable[..., Any]) -> Callable[..., Any]:
        """Return a commit that may be the run's last one."""

        def run(*args: Any, **named: Any) -> Any:
            with self.lock:
                if self.commits >= self.after:
                    raise Killed
                outcome = commit(*args, **named)
                self.commits += 1
                if self.commits >= self.after:
                    raise Killed
                return outcome

        return run

    def executing(self, execute: Callable[..., Any]) -> Callable[..., Any]:
        """Return what executes statements, of which some are commits."""
        committing = self.committing(execute)

        def run(session: Any, statement: str, *args: Any, **named: Any) -> Any:
            is_commit = statement.lstrip().startswith(CHANGING)
            return (committing if is_commit else execute)(session, statement, *args, **named)

        return run

    @contextmanager
    def at_work(self, spark: "SparkSession") -> Iterator[None]:
        """Watch all commits: those of Python by the catalog, those of Spark by statements and writers."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SqlCatalog, "commit_table", self.committing(SqlCatalog.commit_table))
            for name in ("append", "overwrite"):
                patch.setattr(DataFrameWriterV2, name, self.committing(getattr(DataFrameWriterV2, name)))
            patch.setattr(type(spark), "sql", self.executing(type(spark).sql))
            yield


def test_a_kill_after_any_commit_loses_and_doubles_nothing(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """While tables are copied, columns come, go and are retyped, and a table is added; the end is proven."""
    traffic = ChangingTraffic(11, 4, session_lake, rate=30)
    with traffic.open() as (_simulator, pipeline):
        settings = replace(pipeline.settings, copy_chunk_rows=100, copy_s=0)
        # What the first look shows was there before, and no change.
        run = open_pipeline(settings)
        run_cycle(run, spark)
        run.source.close()
        for after in KILLED_AFTER:
            traffic.now_micros += 3 * SECOND
            run = open_pipeline(settings)  # as a new process
            with Executioner(after).at_work(spark), pytest.raises(Killed):
                run_cycle(run, spark)
            run.source.close()
        pipeline.forget_tables()
        while run_cycle(pipeline, spark).copy.is_going_on:
            traffic.now_micros += SECOND
        prove_end(pipeline, spark)
        events = list_schema_events(pipeline.lake)
        plans = load_plans(pipeline.lake)

    assert {"accounts", "transfers"} <= plans.keys()
    kinds = {event.change for event in events if event.since_micros is not None}
    assert {
        SchemaChange.TABLE_ADDED,
        SchemaChange.COLUMN_ADDED,
        SchemaChange.COLUMN_DROPPED,
        SchemaChange.COLUMN_RETYPED,
    } <= kinds
