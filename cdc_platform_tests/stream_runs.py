"""Runs of a stream's asset and check as Dagster makes them, against a server of Datastream's API."""

from dataclasses import dataclass, field
from typing import Any

import dagster as dg
from google.cloud.datastream_v1.types import BackfillJob, Error, SourceObjectIdentifier, StreamObject

from cdc_platform.assets.stream_state import StreamAsset, build_stream, stream_resource
from cdc_platform.checks.stream_state import build_stream_check
from cdc_platform.model.base.names import STREAM_IS_RUNNING
from cdc_platform.sources.datastream.settings.stream_settings import StreamSettings

JOB = "bank_sync"


def table(name: str, backfill: str = "COMPLETED", *errors: Error) -> StreamObject:
    """Return a table of PostgreSQL's schema `public` with its backfill and errors."""
    identifier = SourceObjectIdentifier(postgresql_identifier={"schema": "public", "table": name})
    return StreamObject(
        name=name, source_object=identifier, backfill_job=BackfillJob(state=backfill), errors=list(errors)
    )


@dataclass
class StreamBench:
    """A pipeline of a stream and one asset that reads what it has written."""

    settings: StreamSettings
    instance: dg.DagsterInstance
    stream: StreamAsset = field(init=False)
    stored: list[dg.AssetCheckEvaluation] = field(default_factory=list)
    """Results that the check has stored."""

    def __post_init__(self) -> None:
        self.stream = StreamAsset("bank", self.settings, ("team:payments",))

    @property
    def raw(self) -> dg.AssetKey:
        """Key of the asset that reads."""
        return dg.AssetKey(["bank__cdc", "raw"])

    @property
    def check_key(self) -> dg.AssetCheckKey:
        """Key of the check."""
        return dg.AssetCheckKey(self.stream.key, STREAM_IS_RUNNING)

    def definitions(self) -> dg.Definitions:
        """Return all of the pipeline, with a job of it."""

        @dg.asset(key=self.raw, deps=[self.stream.key])
        def raw() -> None:
            """Read what the stream has written."""

        keys = (self.stream.key, self.raw)
        selection = dg.AssetSelection.assets(*keys) | dg.AssetSelection.checks_for_assets(*keys)
        return dg.Definitions(
            assets=[build_stream(self.stream), raw],
            asset_checks=[build_stream_check(self.stream, self.stored.extend)],
            jobs=[dg.define_asset_job(JOB, selection, executor_def=dg.in_process_executor)],
            resources={self.stream.resource_key: stream_resource(self.stream)},
        )

    def run(self, *, check_alone: bool = False) -> dg.ExecuteInProcessResult:
        """Run the pipeline, or the check of its stream alone."""
        job = self.definitions().resolve_job_def(JOB)
        if check_alone:
            job = job.get_subset(asset_selection=set(), asset_check_selection={self.check_key})
        return job.execute_in_process(instance=self.instance, raise_on_error=False)

    def observed(self) -> dict[str, Any]:
        """Return what the newest observation shows, as plain values where it has them."""
        (record,) = self.instance.fetch_observations(self.stream.key, limit=1).records
        observation = record.asset_observation
        assert observation is not None
        return {name: value.value for name, value in observation.metadata.items()}
