"""Alerts: a message to a webhook when a check begins to fail, and when it holds again.

A lag above the bound is such a check, too: `fresh` of each table, with `runs.fresh_fail_s` of the pipeline.
"""

import json
import os
import time
from datetime import UTC, datetime
from urllib.request import Request, urlopen

import dagster as dg

WEBHOOK_VARIABLE = "ALERT_WEBHOOK"
OVERLAP_S = 60.0
"""Results that are read again: one may be stored a little after a newer one."""
DAY_S = 86_400.0
"""Most of the past that is read, and the longest run whose results are found in Dagster's default storage."""


def post(text: str) -> None:
    """Send a message, as Slack, Teams and Mattermost take it.

    Raises:
        OSError: the webhook did not take it.
    """
    body = json.dumps({"text": text}).encode()
    address = os.environ[WEBHOOK_VARIABLE]
    request = Request(address, body, {"Content-Type": "application/json"})  # noqa: S310  an address of ours
    with urlopen(request, timeout=10):  # noqa: S310
        pass


@dg.sensor(minimum_interval_seconds=30, default_status=dg.DefaultSensorStatus.RUNNING)
def failed_checks(context: dg.SensorEvaluationContext) -> dg.SkipReason:
    """Post when a check of any code location begins to fail, with errors only, and when it holds again."""
    now_s = time.time()
    if context.cursor is None:
        # What failed before anyone listened is on the pages of the checks.
        _remember(context, now_s, now_s, set())
        return dg.SkipReason("Listening from now on.")
    seen = json.loads(context.cursor)
    failing, begun_s = set(seen["failing"]), seen["begun"]
    results = _newest_results(context.instance, max(begun_s, seen["since"] - OVERLAP_S, now_s - DAY_S))
    for name, evaluation in results.items():
        is_failing = not evaluation.passed and evaluation.severity is dg.AssetCheckSeverity.ERROR
        if is_failing == (name in failing):
            continue
        try:
            post(f"{name} {'fails' if is_failing else 'holds again'}. {evaluation.description or ''}")
        except OSError as error:
            # Dagster forgets the cursor of an evaluation that raises, so messages would be sent twice.
            _remember(context, begun_s, seen["since"], failing)
            return dg.SkipReason(f"The webhook did not take a message, which is sent again: {error}")
        (failing.add if is_failing else failing.discard)(name)
    _remember(context, begun_s, now_s, failing)
    return dg.SkipReason(f"{len(results)} new results, {len(failing)} checks fail.")


def _newest_results(instance: dg.DagsterInstance, since_s: float) -> dict[str, dg.AssetCheckEvaluation]:
    """Return the newest result of each check that has one since then.

    Positions in the event log are no cursor here: Dagster's default storage has one log for each run.
    """
    runs_since = dg.RunShardedEventsCursor(0, datetime.fromtimestamp(since_s - DAY_S, UTC))
    selection = dg.EventRecordsFilter(
        dg.DagsterEventType.ASSET_CHECK_EVALUATION, after_cursor=runs_since, after_timestamp=since_s
    )
    entries = [record.event_log_entry for record in instance.get_event_records(selection)]
    newest = {}
    for entry in sorted(entries, key=lambda entry: entry.timestamp):
        evaluation = entry.dagster_event.asset_check_evaluation_data
        newest[f"{evaluation.asset_key.to_user_string()}: {evaluation.check_name}"] = evaluation
    return newest


def _remember(context: dg.SensorEvaluationContext, begun_s: float, since_s: float, failing: set[str]) -> None:
    context.update_cursor(json.dumps({"begun": begun_s, "since": since_s, "failing": sorted(failing)}))


@dg.run_failure_sensor(default_status=dg.DefaultSensorStatus.RUNNING, monitor_all_code_locations=True)
def failed_runs(context: dg.RunFailureSensorContext) -> None:
    """Post when a run fails, of this code location or of the pipeline's."""
    run = context.dagster_run
    post(f"Run {run.run_id[:8]} of {run.job_name} failed. {context.failure_event.message}")
