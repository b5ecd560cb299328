"""Retention of runs: Dagster itself keeps every run, with its events, logs and check results, for good."""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import dagster as dg
from dagster._core.instance import RUNLESS_RUN_ID
from dagster._core.storage.event_log.schema import (
    AssetCheckExecutionsTable,
    AssetEventTagsTable,
    SqlEventLogStorageTable,
)
from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage
from dagster._core.storage.event_log.sqlite import SqliteEventLogStorage
from sqlalchemy import select

from cdc_platform.assets.layers import PipelineAssets
from cdc_platform.claims import newest_full_checks, newest_runs
from cdc_platform.model.base.names import FRESH

LOGGER: Final = logging.getLogger(__name__)

MAX_AT_ONCE: Final = 20
"""Maximum number of runs deleted by one evaluation of a sensor or a schedule."""
RESULTS_AT_ONCE: Final = 1000
"""Maximum number of results deleted by one report of new ones; a report has one of each table."""
MAX_S: Final = 15.0
"""Seconds after which it deletes no further run: an evaluation has 60 s, and requests a run as well."""
NEWEST: Final = 10
"""Newest runs, which stay: the sensor counts failures in a row."""
FINISHED: Final = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)


def delete_old_runs(
    instance: dg.DagsterInstance, assets: PipelineAssets, requested_by: Mapping[str, str], keep_s: float
) -> int:
    """Delete the oldest runs that a sensor or a schedule requested and that ended before the retention.

    A run stays as long as it has the newest materialisation of an asset: the UI and data versions rely on
    them. That of the raw records also has those of all live partitions, and the newest check results, since
    each run repeats them. So do the runs that the sensor looks at: the newest, and the newest with full
    checks. Errors are only logged: the pipeline continues without retention.

    Args:
        instance: where the runs are.
        assets: the names of the pipeline's assets.
        requested_by: the tag of the sensor or schedule.
        keep_s: the retention.

    Returns:
        The number of runs deleted.
    """
    count, end_s = 0, time.monotonic() + MAX_S
    with _deleting(instance, assets) as events:
        if events is None:
            return 0
        for run_id in _choose_runs(instance, assets, requested_by, keep_s):
            if time.monotonic() > end_s:
                break
            _delete_run(instance, events, run_id, assets)
            count += 1
    return count


def delete_old_results(instance: dg.DagsterInstance, assets: PipelineAssets, keep_s: float) -> int:
    """Delete freshness results that no run made and that are past the retention; return their number."""
    logs, results = SqlEventLogStorageTable, AssetCheckExecutionsTable
    before = datetime.now(UTC).replace(tzinfo=None) - timedelta(seconds=keep_s)
    query = select(results.c.id, results.c.evaluation_event_storage_id, results.c.evaluation_event).where(
        results.c.asset_key.in_([key.to_string() for key in assets.all_tables]),
        results.c.check_name == FRESH,
        results.c.run_id == RUNLESS_RUN_ID,
        results.c.evaluation_event_timestamp < before,
    )
    records: Sequence[Any] = ()
    with _deleting(instance, assets) as events:
        if events is None:
            return 0
        with events.index_connection() as index:
            rows = index.execute(query.limit(RESULTS_AT_ONCE)).fetchall()
        if isinstance(events, SqliteEventLogStorage):
            # Its file of all events without a run has them, too; without their results nothing finds them.
            with events.run_connection(RUNLESS_RUN_ID) as runless:
                runless.execute(logs.delete().where(logs.c.event.in_([row[2] for row in rows])))
        with events.index_connection() as index:
            index.execute(logs.delete().where(logs.c.id.in_([row[1] for row in rows])))
            index.execute(results.delete().where(results.c.id.in_([row[0] for row in rows])))
        records = rows
    return len(records)


@contextmanager
def _deleting(instance: dg.DagsterInstance, assets: PipelineAssets) -> Iterator[SqlEventLogStorage | None]:
    """Yield the storage to delete from, None on Dagster+; an error is logged and goes no further."""
    events = instance.event_log_storage
    try:
        # Dagster+ has its own retention, and refuses to delete runs.
        yield events if isinstance(events, SqlEventLogStorage) else None
    except Exception:
        LOGGER.exception("Old runs or results of %s cannot be deleted.", assets.pipeline)


def _choose_runs(
    instance: dg.DagsterInstance, assets: PipelineAssets, requested_by: Mapping[str, str], keep_s: float
) -> Sequence[str]:
    """Return the oldest runs that nothing needs."""
    ended_before = datetime.now(UTC) - timedelta(seconds=keep_s)
    run_filter = dg.RunsFilter(tags=requested_by, statuses=list(FINISHED), updated_before=ended_before)
    if not instance.get_run_ids(run_filter, limit=1):
        return ()
    kept_ids = {
        event.run_id
        for asset in instance.get_asset_records([assets.source, *assets.all_keys])
        if (event := asset.asset_entry.last_materialization_record) is not None
    }
    recent = (*newest_runs(instance, assets.pipeline, NEWEST), *newest_full_checks(instance, assets.pipeline))
    kept_ids |= {record.dagster_run.run_id for record in recent}
    oldest = instance.get_run_records(run_filter, limit=len(kept_ids) + MAX_AT_ONCE, ascending=True)
    run_ids = [record.dagster_run.run_id for record in oldest]
    return [run_id for run_id in run_ids if run_id not in kept_ids][:MAX_AT_ONCE]


def _delete_run(
    instance: dg.DagsterInstance, events: SqlEventLogStorage, run_id: str, assets: PipelineAssets
) -> None:
    """Delete a run, and first what belongs to it: nothing finds that once the run is gone."""
    instance.compute_log_manager.delete_logs(prefix=[run_id])
    _delete_from_index(events, run_id, assets)
    events.delete_events(run_id)
    if isinstance(events, SqliteEventLogStorage):
        # The file of a run stays as large as it was when its rows are deleted.
        Path(events.path_for_shard(run_id)).unlink(missing_ok=True)
    instance.run_storage.delete_run(run_id)


def _delete_from_index(events: SqlEventLogStorage, run_id: str, assets: PipelineAssets) -> None:
    """Delete what Dagster does not delete with a run.

    It deletes results of checks only with their asset, and tags by the ids of all events in one statement,
    which SQLite refuses for a run of many cycles.
    """
    logs, tags, results = SqlEventLogStorageTable, AssetEventTagsTable, AssetCheckExecutionsTable
    keys = [key.to_string() for key in assets.all_keys]
    with events.index_connection() as index:
        of_run = select(logs.c.id).where(logs.c.run_id == run_id)
        index.execute(tags.delete().where(tags.c.event_id.in_(of_run)))
        index.execute(logs.delete().where(logs.c.run_id == run_id))
        # The index of results begins with the asset.
        index.execute(results.delete().where(results.c.asset_key.in_(keys), results.c.run_id == run_id))
