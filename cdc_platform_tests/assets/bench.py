"""A pipeline's definitions on an in-memory source, to run as Dagster does."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import create_execution_plan, execute_run
from dagster._core.storage.tags import ASSET_PARTITION_RANGE_END_TAG, ASSET_PARTITION_RANGE_START_TAG

from cdc_platform import resources
from cdc_platform.assets.layers import PipelineAssets
from cdc_platform.claims import FULL_CHECKS_TAG, pipeline_tag
from cdc_platform.components.building import build_pipeline
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.schema.table_options import TableOptions
from cdc_platform.model.stream.read_windows import ReadWindow
from cdc_platform.model.stream.source_capabilities import CHANGE_STREAM
from cdc_platform.partitions import change_stream_partitions
from cdc_platform.pipeline.checks.invariants import checks_of
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.sensors import RunSettings
from cdc_platform_tests.pipeline.bank import bank_pipeline
from cdc_platform_tests.support.history import RawRow
from cdc_platform_tests.support.pipelines import FakeSource, source_of, window_row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CYCLE_CHECKS = {check.name for check in checks_of(CHANGE_STREAM) if check.every_cycle}


@dataclass(frozen=True)
class Bench:
    """A pipeline's definitions, and an instance to run them on."""

    pipeline: Pipeline
    assets: PipelineAssets
    definitions: dg.Definitions
    instance: dg.DagsterInstance
    spark: "SparkSession"

    def run(
        self,
        selection: Sequence[dg.AssetKey],
        config: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        has_full_checks: bool = False,
        names_partitions: bool = True,
        has_check_steps: bool = False,
    ) -> dg.ExecuteInProcessResult:
        """Run some assets as the UI asks for them, naming all live partitions, or as the sensor does."""
        job = self.definitions.resolve_job_def(f"{self.pipeline.name}_sync")
        graph = self.definitions.resolve_asset_graph()
        checks = [
            key
            for key in graph.asset_check_keys
            if has_check_steps and key.asset_key in selection and key.name in CYCLE_CHECKS
        ]
        keys = self.instance.get_dynamic_partitions(str(change_stream_partitions(self.pipeline.name).name))
        part = job.get_subset(asset_selection=set(selection), asset_check_selection=set(checks))
        partitions = (
            {ASSET_PARTITION_RANGE_START_TAG: keys[0], ASSET_PARTITION_RANGE_END_TAG: keys[-1]}
            if names_partitions
            else {}
        )
        return part.execute_in_process(
            instance=self.instance,
            run_config={"ops": {key: {"config": value} for key, value in (config or {}).items()}},
            tags={
                **pipeline_tag(self.pipeline.name),
                FULL_CHECKS_TAG: str(has_full_checks).lower(),
                **partitions,
            },
            raise_on_error=False,
        )

    def repeat(self, selection: Sequence[dg.AssetKey]) -> dg.JobExecutionResult:
        """Run the steps of some assets as Dagster repeats chosen steps of a run of all assets and checks."""
        job = self.definitions.resolve_job_def(f"{self.pipeline.name}_sync")
        steps = [key.to_python_identifier() for key in selection]
        plan = create_execution_plan(job, step_keys_to_execute=steps)
        run = self.instance.create_run_for_job(job, execution_plan=plan)
        return execute_run(InMemoryJob(job), run, self.instance)

    def cut_config(self, follow_s: float) -> dict[str, Any]:
        """Return the configuration of a run that continues."""
        return {self.assets.cut.to_python_identifier(): {"follow_s": follow_s}}


@contextmanager
def open_bench(spark: "SparkSession", lake: LakeSettings, **options: TableOptions) -> Iterator[Bench]:
    """Yield the bank's pipeline in Dagster, with its root partition known, and the options of its tables."""
    pipeline = bank_pipeline(lake, **options)
    settings = replace(
        pipeline.settings, tables=("accounts", "transfers"), check_every_s=0, idle_interval_s=0
    )
    pipeline = replace(pipeline, settings=settings)
    assets = PipelineAssets(pipeline.name, ("accounts", "transfers"))
    with pytest.MonkeyPatch.context() as patch, dg.DagsterInstance.ephemeral() as instance:
        patch.setattr(resources, "open_pipeline", lambda _settings: pipeline)
        patch.setattr(resources, "start_session", lambda _resource, _settings: spark)
        patch.setattr(FakeSource, "close", lambda _self: None, raising=False)
        instance.add_dynamic_partitions(str(change_stream_partitions(pipeline.name).name), ["root"])
        yield Bench(pipeline, assets, build_pipeline(settings, RunSettings()), instance, spark)


def answer_with(pipeline: Pipeline, until_micros: int, *records: RawRow) -> None:
    """Let the source answer the next read with these records, and its clock show the end of the window."""
    source = source_of(pipeline)
    source.now_micros = until_micros + 1
    source.answer = lambda cycle, windows: [
        {**row, "cycle": cycle} for row in (*records, *(report(window, len(records)) for window in windows))
    ]


def report(planned: ReadWindow, records: int) -> RawRow:
    """Return the row of a window that was read whole."""
    return window_row(planned, records=records)
