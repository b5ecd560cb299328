"""The check of a stream's own state, which distinguishes a stopped stream from an idle one."""

from collections.abc import Callable
from typing import Final

import dagster as dg

from cdc_platform.assets.stream_state import StreamAsset, find_reading
from cdc_platform.errors import SourceError
from cdc_platform.metadata import describe_facts
from cdc_platform.model.base.names import STREAM_IS_RUNNING
from cdc_platform.sources.datastream.stream.stream_state import Concern, StreamState, StreamStatus
from cdc_platform.visible import visible_text

_SEVERITIES: Final = {
    # Dagster wants a severity of a check that passes, too, and shows none.
    Concern.NONE: dg.AssetCheckSeverity.WARN,
    Concern.WARNING: dg.AssetCheckSeverity.WARN,
    Concern.FAILURE: dg.AssetCheckSeverity.ERROR,
}


def build_stream_check(
    stream: StreamAsset, store: Callable[[list[dg.AssetCheckEvaluation]], None]
) -> dg.AssetChecksDefinition:
    """Return the check that the stream runs and reports no errors.

    It blocks nothing: what the stream has written so far is still read and published. ``store``
    receives the result, for readers outside Dagster.
    """

    @dg.asset_check(
        asset=stream.key,
        name=STREAM_IS_RUNNING,
        description="The stream is running and reports no errors, neither of its own nor of its objects. "
        "Otherwise the tables may stop changing or miss rows, without any other sign.",
        blocking=False,
        required_resource_keys={stream.resource_key},
    )
    def stream_is_running(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        result = judge_stream(find_reading(context, stream).outcome)
        evaluation = dg.AssetCheckEvaluation(
            stream.key,
            STREAM_IS_RUNNING,
            result.passed,
            result.metadata,
            severity=result.severity,
            description=result.description,
        )
        store([evaluation])
        return result

    return stream_is_running


def judge_stream(outcome: StreamStatus | SourceError) -> dg.AssetCheckResult:
    """Return the result of the check, which passes only for a status that needs no attention.

    An unreadable status is a warning if a later read may succeed, and an error if somebody has to act first.
    """
    if isinstance(outcome, SourceError):
        return dg.AssetCheckResult(
            passed=False,
            severity=dg.AssetCheckSeverity.WARN if outcome.retryable else dg.AssetCheckSeverity.ERROR,
            description=f"Whether the stream is running is not known. {outcome}",
            metadata=describe_facts({"state": StreamState.UNKNOWN.value, "problem": type(outcome).__name__}),
        )
    return dg.AssetCheckResult(
        passed=outcome.concern is Concern.NONE,
        severity=_SEVERITIES[outcome.concern],
        description=visible_text(outcome.summary),
        metadata=describe_facts(
            {
                "state": outcome.state.value,
                "stream_errors": len(outcome.errors),
                "objects_in_trouble": len(outcome.troubled_objects),
            }
        ),
    )
