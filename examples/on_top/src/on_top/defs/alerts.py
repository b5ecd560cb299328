"""Alerts: a message to a webhook when a check begins to fail, and when it holds again.

A lag above the bound is such a check, too: `fresh` of each table, with `runs.fresh_fail_s` of the pipeline.
"""

import json
import os
from urllib.request import Request, urlopen

import dagster as dg

WEBHOOK_VARIABLE = "ALERT_WEBHOOK"
EVALUATION = dg.DagsterEventType.ASSET_CHECK_EVALUATION
MAX_EVENTS = 500


def post(text: str) -> None:
    """Send a message, as Slack, Teams and Mattermost take it.

    Raises:
        OSError: the webhook did not take it; the sensor tries again at its next evaluation.
    """
    body = json.dumps({"text": text}).encode()
    address = os.environ[WEBHOOK_VARIABLE]
    request = Request(address, body, {"Content-Type": "application/json"})  # noqa: S310  an address of ours
    with urlopen(request, timeout=10):  # noqa: S310
        pass


@dg.sensor(minimum_interval_seconds=30, default_status=dg.DefaultSensorStatus.RUNNING)
def failed_checks(context: dg.SensorEvaluationContext) -> dg.SkipReason:
    """Post when a check of any code location begins to fail, with errors only, and when it holds again."""
    if context.cursor is None:
        # What failed before anyone listened is on the pages of the checks.
        newest = context.instance.get_event_records(dg.EventRecordsFilter(EVALUATION), limit=1)
        _remember(context, newest[0].storage_id if newest else 0, set())
        return dg.SkipReason("Listening from now on.")
    seen = json.loads(context.cursor)
    failing, since = set(seen["failing"]), seen["since"]
    results = dg.EventRecordsFilter(EVALUATION, after_cursor=since)
    records = context.instance.get_event_records(results, limit=MAX_EVENTS, ascending=True)
    for record in records:
        evaluation = record.event_log_entry.dagster_event.asset_check_evaluation_data
        name = f"{evaluation.asset_key.to_user_string()}: {evaluation.check_name}"
        is_failing = not evaluation.passed and evaluation.severity is dg.AssetCheckSeverity.ERROR
        if is_failing != (name in failing):
            post(f"{name} {'fails' if is_failing else 'holds again'}. {evaluation.description or ''}")
        (failing.add if is_failing else failing.discard)(name)
        # Message by message, so that one that the webhook did not take is sent again, and no other.
        _remember(context, record.storage_id, failing)
    return dg.SkipReason(f"{len(records)} new results, {len(failing)} checks fail.")


def _remember(context: dg.SensorEvaluationContext, since: int, failing: set[str]) -> None:
    context.update_cursor(json.dumps({"since": since, "failing": sorted(failing)}))


@dg.run_failure_sensor(default_status=dg.DefaultSensorStatus.RUNNING, monitor_all_code_locations=True)
def failed_runs(context: dg.RunFailureSensorContext) -> None:
    """Post when a run fails, of this code location or of the pipeline's."""
    run = context.dagster_run
    post(f"Run {run.run_id[:8]} of {run.job_name} failed. {context.failure_event.message}")
