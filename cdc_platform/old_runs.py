"""Retention of runs: Dagster itself keeps every run, with its events, logs and check results, for good."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import dagster as dg
from dagster._core.storage.event_log.schema import AssetCheckExecutionsTable
from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage
from dagster._core.storage.event_log.sqlite import SqliteEventLogStorage
from dagster._core.storage.tags import SENSOR_NAME_TAG

from cdc_platform.assets.layers import PipelineAssets
from cdc_platform.partitions import change_stream_partitions

MAX_AT_ONCE: Final = 20
"""Maximum number of runs deleted by one evaluation of a sensor, which has 60 s."""
FINISHED: Final = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)


def delete_old_runs(instance: dg.DagsterInstance, assets: PipelineAssets, sensor: str, keep_s: float) -> int:
    """Delete the oldest runs that a sensor requested and that ended before the retention.

    A run stays as long as it has the newest materialisation of an asset or of a live partition: the UI and
    data versions rely on them. The newest check results are in the newest run, since each run repeats them.

    Returns:
        The number of runs deleted.
    """
    ended_before = datetime.now(UTC) - timedelta(seconds=keep_s)
    old = dg.RunsFilter(tags={SENSOR_NAME_TAG: sensor}, statuses=list(FINISHED), updated_before=ended_before)
    if not instance.get_run_ids(old, limit=1):
        return 0
    needed = set(_newest_runs(instance, assets, ended_before))
    oldest = instance.get_run_records(old, limit=len(needed) + MAX_AT_ONCE, ascending=True)
    run_ids = [record.dagster_run.run_id for record in oldest]
    chosen = [run_id for run_id in run_ids if run_id not in needed][:MAX_AT_ONCE]
    _delete_check_results(instance, chosen)
    for run_id in chosen:
        _delete_run(instance, run_id)
    return len(chosen)


def _newest_runs(
    instance: dg.DagsterInstance, assets: PipelineAssets, ended_before: datetime
) -> Iterator[str]:
    """Yield the runs with the newest materialisations of assets, and the old ones of live partitions."""
    for asset in instance.get_asset_records([assets.source, *assets.all_keys]):
        if (newest := asset.asset_entry.last_materialization_record) is not None:
            yield newest.run_id
    live = set(instance.get_dynamic_partitions(str(change_stream_partitions(assets.pipeline).name)))
    materialised = dg.DagsterEventType.ASSET_MATERIALIZATION
    newest_ids = instance.event_log_storage.get_latest_storage_id_by_partition(assets.raw, materialised, live)
    if newest_ids:
        wanted = dg.AssetRecordsFilter(
            assets.raw, storage_ids=list(newest_ids.values()), before_timestamp=ended_before.timestamp()
        )
        for record in instance.fetch_materializations(wanted, limit=len(newest_ids)).records:
            yield record.run_id


def _delete_check_results(instance: dg.DagsterInstance, run_ids: Sequence[str]) -> None:
    """Delete the results of checks, which Dagster deletes with an asset only, not with a run."""
    events = instance.event_log_storage
    if run_ids and isinstance(events, SqlEventLogStorage):
        with events.index_connection() as connection:
            results = AssetCheckExecutionsTable
            connection.execute(results.delete().where(results.c.run_id.in_(run_ids)))


def _delete_run(instance: dg.DagsterInstance, run_id: str) -> None:
    """Delete a run, and first what belongs to it: nothing finds that once the run is gone."""
    instance.compute_log_manager.delete_logs(prefix=[run_id])
    events = instance.event_log_storage
    events.delete_events(run_id)
    if isinstance(events, SqliteEventLogStorage):
        # The file of a run stays as large as it was when its rows are deleted.
        Path(events.path_for_shard(run_id)).unlink(missing_ok=True)
    instance.run_storage.delete_run(run_id)
