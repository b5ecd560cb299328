"""The check of a stream's own state: which states it lets pass, and what it says of the others."""

from pathlib import Path

import dagster as dg
import grpc  # type: ignore[import-untyped] # ships no types
import pytest
from google.cloud.datastream_v1.types import Error

from cdc_platform.assets.stream_state import StreamReading
from cdc_platform.checks.stream_state import judge_stream
from cdc_platform_tests.sources.datastream.datastream_server import DatastreamServer, Refusal
from cdc_platform_tests.stream_runs import StreamBench, table

WARN, ERROR = dg.AssetCheckSeverity.WARN, dg.AssetCheckSeverity.ERROR
BROKEN = Error(reason="CONNECTION", message="No route to the host")


def judged(stream_server: DatastreamServer) -> dg.AssetCheckResult:
    """Return what the check says of what the server says."""
    return judge_stream(StreamReading(stream_server.settings()).outcome)


def evaluation(stream_bench: StreamBench) -> dg.AssetCheckEvaluation:
    """Return the check's result of a run of the check alone."""
    result = stream_bench.run(check_alone=True)
    assert result.success
    (evaluation,) = result.get_asset_check_evaluations()
    (stored,) = stream_bench.stored
    assert (evaluation.passed, evaluation.description) == (stored.passed, stored.description)
    return evaluation


@pytest.mark.parametrize(
    ("state", "severity", "advice"),
    [
        ("NOT_STARTED", WARN, "start it"),
        ("STARTING", WARN, "wait"),
        ("DRAINING", WARN, "until it is resumed"),
        ("PAUSED", WARN, "resume it, before the source deletes the log"),
        ("MAINTENANCE", WARN, "wait"),
        ("FAILED", ERROR, "remove the cause that the errors name"),
        ("FAILED_PERMANENTLY", ERROR, "recover the stream"),
        ("STATE_UNSPECIFIED", WARN, "look at the stream in Datastream's console"),
    ],
)
def test_a_stream_that_stands_still_does_not_pass(
    stream_server: DatastreamServer, state: str, severity: dg.AssetCheckSeverity, advice: str
) -> None:
    """The severity says whether a user caused the state, the description says what to do."""
    stream_server.hold(state)
    result = judged(stream_server)
    assert (False, severity) == (result.passed, result.severity)
    assert advice in (result.description or "")


def test_a_running_stream_passes(stream_server: DatastreamServer, stream_bench: StreamBench) -> None:
    """A stream without errors, whose backfills are not over yet, is as it should be."""
    stream_server.hold("RUNNING", table("accounts"), table("cards", "ACTIVE"), table("users", "NOT_STARTED"))
    actual = evaluation(stream_bench)
    assert actual.passed
    assert "the source has no changes" in (actual.description or "")


def test_errors_of_a_running_stream_are_a_warning(
    stream_server: DatastreamServer, stream_bench: StreamBench
) -> None:
    """Errors are reported with the object and the text, and counted."""
    stream_server.hold(
        "RUNNING", table("cards", "UNSUPPORTED"), table("users", "ACTIVE", BROKEN), errors=[BROKEN]
    )
    actual = evaluation(stream_bench)
    assert (actual.passed, actual.severity) == (False, WARN)
    assert "Errors (1): CONNECTION: No route to the host." in (actual.description or "")
    assert "public.cards (backfill unsupported); public.users" in (actual.description or "")
    counts = {name: actual.metadata[name].value for name in ("Stream errors", "Objects in trouble")}
    assert counts == {"Stream errors": 1, "Objects in trouble": 2}


@pytest.mark.parametrize(
    ("code", "severity"), [("UNAVAILABLE", WARN), ("PERMISSION_DENIED", ERROR), ("NOT_FOUND", ERROR)]
)
def test_a_stream_that_cannot_be_asked_does_not_pass(
    stream_server: DatastreamServer, code: str, severity: dg.AssetCheckSeverity
) -> None:
    """A state that may pass by itself is a warning; one that requires action is an error."""
    stream_server.hold("RUNNING")
    stream_server.refusals = [Refusal(grpc.StatusCode[code], "no")] * 3
    result = judged(stream_server)
    assert (False, severity) == (result.passed, result.severity)
    assert (result.description or "").startswith("Whether the stream is running is not known. Cannot read")


def test_a_check_that_is_asked_for_alone_asks_the_stream(
    stream_server: DatastreamServer, stream_bench: StreamBench
) -> None:
    """It needs no observation that came before."""
    stream_server.hold("FAILED", errors=[BROKEN])
    actual = evaluation(stream_bench)
    assert (actual.passed, actual.severity) == (False, ERROR)


def test_result_and_observation_are_kept_on_disk(stream_server: DatastreamServer, tmp_path: Path) -> None:
    """Anyone who opens the instance later, as the UI does, finds what the run has seen."""
    stream_server.hold("FAILED", errors=[BROKEN])
    with dg.DagsterInstance.local_temp(str(tmp_path)) as written:
        assert StreamBench(stream_server.settings(), written).run().success
    with dg.DagsterInstance.local_temp(str(tmp_path)) as opened:
        bench = StreamBench(stream_server.settings(), opened)
        (record,) = opened.event_log_storage.get_asset_check_execution_history(bench.check_key, limit=1)
        assert (record.status.value, bench.observed()["State"]) == ("FAILED", "failed")
