"""Kinds of cycles in which a process dies, each on a separate lake."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from cdc_platform.lake.state.cuts import list_cuts
from cdc_platform.lake.state.pins import pin_cut, unpin_cut
from cdc_platform.lake.state.read_progress import MAX_DATA_FILES
from cdc_platform.model.schema.table_options import TableOptions
from cdc_platform.model.stream.quarantined_records import QuarantineFilter
from cdc_platform.pipeline.cycle import run_cycle
from cdc_platform.pipeline.on_demand.rebuild import rebuild_table
from cdc_platform.pipeline.on_demand.replay import replay_records
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.opened.pipeline_settings import MaintenanceSettings
from cdc_platform.pipeline.publishing.maintain import maintain_lake
from cdc_platform.sources.debezium.settings.connector import SnapshotPolicy
from cdc_platform_tests.support.crash_points.files import mortal_lake, watch_catalogs
from cdc_platform_tests.support.crash_points.kept_lakes import KeptLake
from cdc_platform_tests.support.crash_points.runs import Act, Trial, reopened
from cdc_platform_tests.support.crash_points.spark_catalog import mortal_session
from cdc_platform_tests.support.crash_points.workloads import (
    OpenOutlet,
    backfilled_files,
    changing_bank,
    copied_bank,
    misread_bank,
    moving_bank,
    refused_files,
    refused_transactions,
    snapshots,
    transactions,
    widening_files,
    widening_transactions,
)
from cdc_platform_tests.support.days.debezium import PARTS, Habits
from cdc_platform_tests.support.debezium.outlets import spool, topics
from cdc_platform_tests.support.workloads.workload import WORKLOADS, Place, Workload

PIPELINE: Final = "mortal"
CHANGES: Final = 20
"""Of each cycle."""
IMPATIENT: Final = MaintenanceSettings(
    keep_every_cut_s=0, keep_snapshots_s=0, keep_snapshots=10, keep_metadata_s=0, expire_every_cycles=1
)
"""Maintenance that removes as much of a few cycles as it may."""

OpenWorkload = Callable[[Place], AbstractContextManager[Workload]]


@dataclass(frozen=True)
class Scenario:
    """A kind of cycle of one source.

    Args:
        source: opens the workload.
        act: what the run does that dies.
        cycles: so many whole cycles come before it.
        changes: settings of the pipeline.
        repeats: whether the user repeats the run before the pipeline catches up.
        reads: whether there is input that the cycles before have not read.
    """

    source: OpenWorkload
    act: Act = run_cycle
    cycles: int = 2
    changes: Mapping[str, Any] = field(default_factory=dict)
    repeats: bool = False
    reads: bool = True

    @contextmanager
    def open(self, spark: SparkSession, folder: Path) -> Iterator[Trial]:
        """Prepare a lake in an empty folder, and yield it."""
        watch_catalogs()
        lake = folder / "lake"
        lake.mkdir(parents=True)
        settings = mortal_lake(lake)
        place = Place(folder / "input", settings, PIPELINE, CHANGES)
        with mortal_session(spark, settings, folder) as session, self.source(place) as work:
            for remaining_tries in reversed(range(self.cycles)):
                work.send()
                if not remaining_tries and not self.reads:
                    work.finish()
                with reopened(replace(work.settings, **self.changes)) as pipeline:
                    run_cycle(pipeline, session)
            if self.reads:
                work.send()
                work.finish()
            kept = KeptLake(lake, folder / "pool")
            yield Trial(work, session, kept, kept.keep(), self.act, self.changes, self.repeats)


def workload(name: str) -> OpenWorkload:
    """Return what opens a workload that needs no broker."""
    return lambda place: WORKLOADS[name](place, None)


def rebuild(table: str) -> Act:
    """Return the rebuild of a table from the log."""
    return lambda pipeline, spark: rebuild_table(pipeline, spark, table)


def maintain(pipeline: Pipeline, spark: SparkSession) -> None:
    """Compact everything, and expire what may expire."""
    maintain_lake(pipeline, spark, thorough=True)


def pin_and_expire(pipeline: Pipeline, spark: SparkSession) -> None:
    """Pin the oldest cut, expire others, give the pin up, and expire that cut, too.

    The recovery publishes another cut, whatever was pinned at the death.
    """
    oldest, *_, newest = list_cuts(pipeline.lake)
    assert oldest.cut < newest.cut
    pin_cut(pipeline.lake, spark, oldest.cut)
    maintain_lake(pipeline, spark, thorough=True)
    unpin_cut(pipeline.lake, spark, oldest.cut)
    maintain_lake(pipeline, spark, thorough=True)


def replay(pipeline: Pipeline, spark: SparkSession) -> None:
    """Ask for the replay of all that lies in quarantine, and run the cycle that does it."""
    replay_records(pipeline, QuarantineFilter())
    run_cycle(pipeline, spark)


SOURCES: Final[Mapping[str, tuple[str, str]]] = {
    "spanner": ("spanner", "accounts"),
    "datastream": ("datastream_history", "users"),
    "debezium": ("debezium_omit_files", "public.items"),
}
"""By source: the workload, and one of its tables."""
CALM: Final = Habits(0, 0, 0, 0, unseen=60, policy=SnapshotPolicy.MERGE)
"""A connector that takes one snapshot, and follows the log from then on."""
REPEATING: Final = replace(CALM, snapshot=1.0, policy=SnapshotPolicy.REPLACE)
"""A connector that takes one snapshot after the other, each of which replaces the tables."""
CHUNKING: Final = replace(CALM, incremental=1.0, chunk=5)
"""A connector that reads its first table again and again by chunks, while transactions go on."""
LONG: Final = MAX_DATA_FILES + 1
"""Cycles before the one that replaces the rows of the read progress."""
BY_SPARK: Final[Mapping[str, Any]] = {"local_read_s": 0.0, "local_merge_bytes": 0}
"""Spark's tasks read, order and merge, even small inputs."""
COPY: Final[Mapping[str, Any]] = {"copy_chunk_rows": 250, "copy_s": 0.0}
"""An initial copy in several chunks, of which each cycle copies some."""


def _with_tasks(name: str, scenario: Scenario) -> dict[str, Scenario]:
    """Return a kind of cycle as it is, and as Spark's tasks run it."""
    by_spark = replace(scenario, changes={**scenario.changes, **BY_SPARK})
    return {name: scenario, f"{name}, by Spark": by_spark}


def _with_snapshots(open_outlet: OpenOutlet | None) -> dict[str, Scenario]:
    """Return a first snapshot of a connector that is under way when the run dies."""
    opened = partial(snapshots, CALM, open_outlet=open_outlet)
    return _with_tasks("snapshot", Scenario(opened, cycles=1))


def _of_outlet(name: str, open_outlet: OpenOutlet) -> dict[str, Scenario]:
    """Return the kinds of cycles that read the source, which others do not meet."""
    opened = partial(transactions, open_outlet)
    kinds = {
        "first cycle": Scenario(opened, cycles=0),
        **_with_tasks("ordinary", Scenario(opened)),
        **_with_snapshots(open_outlet),
    }
    return {f"{name}: {kind}": scenario for kind, scenario in kinds.items()}


def _of_source(name: str) -> dict[str, Scenario]:
    named, table = SOURCES[name]
    of = partial(Scenario, workload(named))
    options = {"history": TableOptions(history=True), "soft delete": TableOptions(soft_delete=True)}
    with_options = {
        each: scenario
        for kind, option in options.items()
        for each, scenario in _with_tasks(kind, of(changes={"table_options": {table: option}})).items()
    }
    cheap = {"maintenance": IMPATIENT}
    return {
        **_with_tasks("first cycle", of(cycles=0)),
        **_with_tasks("ordinary", of()),
        **with_options,
        "rebuild": of(act=rebuild(table), reads=False),
        "rebuild, asked for again": of(act=rebuild(table), reads=False, repeats=True),
        "maintenance": of(act=maintain, changes=cheap, cycles=12, reads=False),
        "pin and expire": of(act=pin_and_expire, changes=cheap, cycles=12),
    }


SCENARIOS: Final[Mapping[str, Scenario]] = {
    **{f"{source}: {kind}": scenario for source in SOURCES for kind, scenario in _of_source(source).items()},
    "spanner: copy": Scenario(copied_bank, cycles=0, changes=COPY),
    "spanner: copy, by Spark": Scenario(copied_bank, cycles=1, changes={**COPY, **BY_SPARK}),
    **_with_tasks("spanner: moving keys", Scenario(moving_bank)),
    **_with_tasks("spanner: schema change", Scenario(changing_bank, cycles=1)),
    **_with_tasks("spanner: replay", Scenario(misread_bank, replay, repeats=True)),
    **_with_tasks("datastream: schema change", Scenario(widening_files)),
    **_with_tasks("datastream: replay", Scenario(refused_files, replay, repeats=True)),
    **_with_tasks("debezium: schema change", Scenario(widening_transactions)),
    "datastream: replaced read progress": Scenario(workload("datastream_keyless"), cycles=LONG),
    "debezium: replaced read progress": Scenario(workload("debezium_omit_files"), cycles=LONG),
    **_with_tasks("datastream: backfill", Scenario(backfilled_files, cycles=1)),
    **{f"debezium: {kind}": of for kind, of in _with_snapshots(None).items()},
    "debezium: repeated snapshot": Scenario(partial(snapshots, REPEATING), cycles=PARTS + 1),
    **_with_tasks("debezium: incremental snapshot", Scenario(partial(snapshots, CHUNKING), cycles=PARTS + 1)),
    **_of_outlet("debezium from Kafka", topics),
    **_of_outlet("debezium by the engine", spool),
    **_with_tasks("debezium: replay", Scenario(refused_transactions, replay, repeats=True)),
    "debezium by the engine: replay": Scenario(
        partial(refused_transactions, open_outlet=spool), replay, repeats=True
    ),
}
"""By source and kind."""
