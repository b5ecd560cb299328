"""Trouble with single partitions, as a pipeline on a simulator meets it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from cdc_platform.commands.operating.sync import CycleLimit, run_cycles
from cdc_platform.commands.reading.status import describe_status
from cdc_platform.errors import RetentionExpired, SourceError
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.control import load_lineage
from cdc_platform.model.stream.lineage import Partition
from cdc_platform.pipeline.checks.check_result import EVERYTHING
from cdc_platform.pipeline.checks.invariants import CHECKS
from cdc_platform.pipeline.checks.reconciliation import reconcile_tables
from cdc_platform.pipeline.cycle import run_cycle
from cdc_platform.pipeline.on_demand.status import read_status
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.printing.tables import as_text
from cdc_platform.simulator.server import Simulator
from cdc_platform.simulator.wire.simulator_settings import Dialect, Fault, SimulatorSettings
from cdc_platform.sources.spanner.spanner_settings import SpannerSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

ORIGIN = 1_790_000_000_000_000
SECOND = 1_000_000


@dataclass
class Bench:
    """A pipeline on a simulator whose clock the test sets."""

    lake: LakeSettings
    dialect: Dialect
    now_micros: int = ORIGIN + SECOND

    @contextmanager
    def open(self) -> Iterator[tuple[Simulator, Pipeline]]:
        """Yield both; partitions outlive the test."""
        settings = SimulatorSettings(
            dialect=self.dialect,
            partitions=3,
            partition_life_s=600,
            rate=20,
            accounts=30,
            stall_s=60,
            origin_micros=ORIGIN,
        )
        with Simulator(settings, clock=lambda: self.now_micros) as simulator:
            names: dict[str, Any] = simulator.names()
            source = SpannerSettings(**names, stuck_after_s=1, heartbeat_ms=100, backoff_initial_s=0.001)
            pipeline = open_pipeline(
                PipelineSettings(f"trouble_{self.dialect.value}_{id(self)}", source, self.lake)
            )
            yield simulator, pipeline
            pipeline.source.close()

    def cycle(self, pipeline: Pipeline, spark: "SparkSession", seconds: int) -> Any:
        """Let time pass, and run a cycle."""
        self.now_micros += seconds * SECOND
        return run_cycle(pipeline, spark)


def partition_of(pipeline: Pipeline) -> Partition:
    """Return a live partition."""
    lineage = load_lineage(pipeline.lake)
    assert lineage is not None
    return next(partition for partition in lineage.partitions.values() if partition.is_live)


def test_a_stuck_partition_is_noticed(
    spark: "SparkSession", session_lake: LakeSettings, caplog: pytest.LogCaptureFixture
) -> None:
    """Log, status and check name it with its age; it holds the cut until it answers; nothing is lost."""
    bench = Bench(session_lake, Dialect.GOOGLESQL)
    check = next(check for check in CHECKS if check.name == "partitions_alive")
    with bench.open() as (simulator, pipeline):
        first = bench.cycle(pipeline, spark, 4)
        stuck = partition_of(pipeline)
        simulator.inject(Fault.STALLED, times=2, token=stuck.token)
        with caplog.at_level(logging.WARNING):
            position = bench.cycle(pipeline, spark, 30)
        assert position.order.watermark_micros == first.order.watermark_micros
        assert len(position.read.windows) == 3
        sentence = f"Partition `{stuck.key}` is stuck: two queries from"
        assert sentence in "\n".join(caplog.messages)
        assert "30.0 s behind the end of the cycle" in "\n".join(caplog.messages)
        status = read_status(pipeline)
        assert sentence in as_text(describe_status(status))
        assert [partition["age_s"] for partition in status.to_dict()["stuck_partitions"]] == [30.0]
        result = check.run(pipeline, spark, EVERYTHING)
        assert not result.passed
        assert sentence in result.summary

        freed = bench.cycle(pipeline, spark, 1)
        assert bench.now_micros - 1 == freed.cut.position_micros
        assert check.run(pipeline, spark, EVERYTHING).passed
        assert read_status(pipeline).stuck_partitions == ()
        assert all(reconciliation.is_equal for reconciliation in reconcile_tables(pipeline, freed.cut)[0])


def test_sync_tries_five_times_before_it_ends(
    spark: "SparkSession", session_lake: LakeSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    """Five cycles in a row that leave the watermark where it is end a `sync` that is to catch up.

    Meanwhile the other partitions are read; status and check say why.
    """
    bench = Bench(session_lake, Dialect.GOOGLESQL)
    check = next(check for check in CHECKS if check.name == "partitions_alive")

    def wants_more() -> bool:
        bench.now_micros += SECOND
        return True

    with bench.open() as (simulator, pipeline):
        bench.cycle(pipeline, spark, 4)
        bench.now_micros += SECOND
        refused = partition_of(pipeline)
        simulator.inject(Fault.RESOURCE_EXHAUSTED, times=1000, token=refused.token)
        with pytest.raises(SourceError, match="RESOURCE_EXHAUSTED"):
            run_cycles(pipeline.settings, wants_more, CycleLimit())
        sentence = f"Partition `{refused.key}` could not be read further"
        assert sentence in as_text(describe_status(read_status(pipeline)))
        assert sentence in check.run(pipeline, spark, EVERYTHING).summary
    first, *stuck = (line for line in capsys.readouterr().out.splitlines() if line.startswith("cycle "))
    assert first.split()[2:4] == stuck[0].split()[2:4]
    assert len(stuck) == 5


def test_lost_retention_stops_the_pipeline(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """The error lists the operator's choices; the next start reports the same, and skips nothing."""
    bench = Bench(session_lake, Dialect.POSTGRESQL)
    with bench.open() as (simulator, pipeline):
        first = bench.cycle(pipeline, spark, 4)
        simulator.inject(Fault.EXPIRED, token=partition_of(pipeline).token)
        for _ in range(2):
            with pytest.raises(RetentionExpired, match="begin a new lake folder") as caught:
                bench.cycle(pipeline, spark, 1)
            assert not caught.value.retryable
        status = read_status(pipeline)
        assert first.order.watermark_micros == status.watermark_micros
        assert first.cut == status.cut
