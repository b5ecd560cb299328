import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import grpc  # type: ignore[import-untyped] # ships no types
import pytest
from google.auth.exceptions import DefaultCredentialsError, TransportError

from cdc_platform.errors import (
    AccessDenied,
    PartitionBoundsInvalid,
    PartitionStuck,
    QueryRefused,
    RetentionExpired,
    SettingError,
    SourceError,
    SourceNotFound,
    SourceUnreachable,
)
from cdc_platform.model.base.timestamps import to_rfc3339
from cdc_platform.sources.spanner.client.connection import SpannerConnection
from cdc_platform.sources.spanner.client.failures import refused_start, to_source_error
from cdc_platform.sources.spanner.client.query import Query
from cdc_platform.sources.spanner.spanner_settings import SpannerSettings
from cdc_platform.sources.statuses import Retries

SETTINGS = SpannerSettings("p", "i", "d", "s")


@pytest.mark.parametrize(
    ("code", "text", "error"),
    [
        ("OUT_OF_RANGE", "Specified start_timestamp is too far in the past.", RetentionExpired),
        ("OUT_OF_RANGE", "This partition is no longer valid.", RetentionExpired),
        ("OUT_OF_RANGE", "start_timestamp is invalid for the partition.", PartitionBoundsInvalid),
        ("OUT_OF_RANGE", "start_timestamp is too far in the future.", PartitionBoundsInvalid),
        ("INVALID_ARGUMENT", "token is invalid, as it does not belong to", PartitionBoundsInvalid),
        ("INVALID_ARGUMENT", "Table-valued function not found: READ_s", SourceNotFound),
        ("INVALID_ARGUMENT", "anything else", SourceError),
        ("NOT_FOUND", "Database not found", SourceNotFound),
        ("NOT_FOUND", "Session not found", SourceUnreachable),
        ("PERMISSION_DENIED", "Caller is missing IAM permission", AccessDenied),
        ("UNAUTHENTICATED", "", AccessDenied),
        ("UNAVAILABLE", "", SourceUnreachable),
        ("DEADLINE_EXCEEDED", "", SourceUnreachable),
        ("ABORTED", "", SourceUnreachable),
        ("CANCELLED", "", SourceUnreachable),
        ("RESOURCE_EXHAUSTED", "", SourceUnreachable),
        ("INTERNAL", "Received RST_STREAM with error code 2", SourceUnreachable),
        ("INTERNAL", "Authentication backend internal server error. Please retry.", SourceUnreachable),
        ("INTERNAL", "a fault of the server", SourceError),
        ("UNKNOWN", "Stream removed", SourceUnreachable),
        ("UNKNOWN", "", SourceError),
        ("UNIMPLEMENTED", "", QueryRefused),
        ("INVALID_ARGUMENT", "does not belong to the placement TVF", PartitionBoundsInvalid),
        ("NOT_FOUND", "function spanner.read_json_S(...) does not exist", SourceNotFound),
    ],
)
def test_status_becomes_an_error_of_the_platform(code: str, text: str, error: type[SourceError]) -> None:
    """Each status has one meaning, and its message names the stream, what was said, and what to do."""
    actual = to_source_error(SETTINGS, code, text)

    assert error is type(actual)
    assert "change stream `s` of projects/p/instances/i/databases/d" in str(actual)
    assert f"Spanner said {code}: {text}" in str(actual)


@pytest.mark.parametrize(
    ("code", "text", "advice"),
    [
        ("INVALID_ARGUMENT", "Table-valued function not found: READ_s", "Check `project`, `instance`"),
        ("NOT_FOUND", "function spanner.read_json_s(...) does not exist", "count upper and lower case"),
        ("OUT_OF_RANGE", "start_timestamp is too far in the past", "its `retention_period` is over"),
    ],
)
def test_a_dropped_stream_is_among_the_possibilities(code: str, text: str, advice: str) -> None:
    """The same words may mean a wrong setting, or records that are too old."""
    text_of_error = str(to_source_error(SETTINGS, code, text))
    assert advice in text_of_error
    assert re.search(r"(was|the stream) dropped.*begin a new lake folder", text_of_error)


def test_attempts_are_bounded_and_wait_longer_each_time() -> None:
    """Failures in a row end the read, after pauses that double up to the longest."""
    pauses: list[float] = []
    attempts = Retries(5, 1.0, 3.0, pauses.append)
    error = SourceUnreachable("down")

    for _ in range(4):
        attempts.wait_after(error)
    with pytest.raises(SourceUnreachable):
        attempts.wait_after(error)

    limits = [(0.5, 1.0), (1.0, 2.0), (1.5, 3.0), (1.5, 3.0)]
    assert all(low <= pause <= high for pause, (low, high) in zip(pauses, limits, strict=True))


def test_progress_forgives_failures() -> None:
    """A source that answers now and then is read to the end."""
    attempts = Retries(2, 0.0, 0.0, lambda _: None)

    for _ in range(10):
        attempts.wait_after(SourceUnreachable("down"))
        attempts.reset()

    assert attempts.failures == 0


def test_what_cannot_pass_is_not_tried_again() -> None:
    """An error that stays is raised at once."""
    with pytest.raises(AccessDenied):
        Retries(5, 1.0, 1.0, lambda _: pytest.fail("waited")).wait_after(AccessDenied("no"))


def test_a_silent_partition_is_asked_again_once() -> None:
    """The second silence ends the read, after any events in between, and with attempts left."""
    attempts = Retries(9, 0.0, 0.0, lambda _: None)
    attempts.wait_after(PartitionStuck("silent"))
    attempts.reset()
    attempts.wait_after(SourceUnreachable("down"))

    with pytest.raises(PartitionStuck):
        attempts.wait_after(PartitionStuck("silent"))


@pytest.mark.parametrize(
    ("start_days", "earliest_days", "error"),
    [
        (8, 7, RetentionExpired),
        (8, 1, SettingError),  # created a day ago
        (6, 5, SettingError),
        (8, None, RetentionExpired),  # the text is not a contract, and need not name the earliest moment
        (6, None, SettingError),
    ],
)
def test_a_start_before_the_stream_existed_is_no_lost_retention(
    start_days: int, earliest_days: int | None, error: type[Exception]
) -> None:
    """Records that were there and are no longer kept need another advice than records that never were."""
    now, day = 1_800_000_000_000_000, 86_400_000_000
    message = "too far in the past."
    if earliest_days is not None:
        message += (
            f" Specify one within the earliest read timestamp: {to_rfc3339(now - earliest_days * day)}."
        )
    refusal = to_source_error(SETTINGS, "OUT_OF_RANGE", message)
    actual = refused_start(SETTINGS, refusal, now - start_days * day, now, 7 * 86_400)
    assert error is type(actual)
    assert to_rfc3339(now - start_days * day) in str(actual)
    assert "or leave it out" in str(actual)
    assert "new lake folder" not in str(actual)
    assert str(actual).endswith(f". Spanner said OUT_OF_RANGE: {message}")
    if error is SettingError:
        assert "lies before the change stream existed" in str(actual)
        assert earliest_days is None or to_rfc3339(now - earliest_days * day) in str(actual)
    else:
        assert "604800 s" in str(actual)


@pytest.mark.parametrize(
    ("cause", "error", "text"),
    [
        (TransportError, SourceUnreachable, "no answer"),
        (DefaultCredentialsError, AccessDenied, "application default credentials"),
    ],
)
def test_credentials_that_cannot_be_fetched_now_are_fetched_later(
    cause: type[Exception], error: type[SourceError], text: str
) -> None:
    """A server of credentials that does not answer is no lack of credentials."""
    actual = SpannerConnection(SETTINGS)._translate(cause("no answer"))  # noqa: SLF001  only Google's servers raise it elsewhere

    assert error is type(actual)
    assert text in str(actual)
    assert actual.retryable == (error is SourceUnreachable)


def test_a_server_of_another_api_is_no_mistake_of_the_platform() -> None:
    """A wrong port, at which any gRPC server answers, is a wrong setting."""
    server = grpc.server(ThreadPoolExecutor(1), options=[("grpc.so_reuseport", 0)])
    host = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    client = SpannerConnection(replace(SETTINGS, emulator_host=host).with_deadline(60))
    try:
        with pytest.raises(SourceUnreachable, match="Check `emulator_host`"):
            client.fetch(Query("SELECT 1"))
    finally:
        client.close()
        server.stop(None).wait()
