import re

import pytest

from cdc_platform.errors import (
    AccessDenied,
    PartitionBoundsInvalid,
    PartitionModeUnsupported,
    PartitionStuck,
    QueryRefused,
    RetentionExpired,
    SourceError,
    SourceNotFound,
    SourceUnreachable,
)
from cdc_platform.sources.attempts import Attempts
from cdc_platform.sources.spanner.failures import to_source_error
from cdc_platform.sources.spanner.settings import SpannerSettings

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
        ("INTERNAL", "a fault of the server", SourceError),
        ("UNKNOWN", "Stream removed", SourceUnreachable),
        ("UNKNOWN", "", SourceError),
        ("UNIMPLEMENTED", "", QueryRefused),
        ("INVALID_ARGUMENT", "does not belong to the placement TVF", PartitionModeUnsupported),
        ("NOT_FOUND", "function spanner.read_json_S(...) does not exist", SourceNotFound),
    ],
)
def test_status_becomes_an_error_of_the_platform(code: str, text: str, error: type[SourceError]) -> None:
    """Each status has one meaning, and its message names the stream, what was said, and what to do."""
    found = to_source_error(SETTINGS, code, text)

    assert error is type(found)
    assert "change stream `s` of projects/p/instances/i/databases/d" in str(found)
    assert f"Spanner said {code}: {text}" in str(found)


@pytest.mark.parametrize(
    ("code", "text", "advice"),
    [
        ("INVALID_ARGUMENT", "Table-valued function not found: READ_s", "Check `project`, `instance`"),
        ("NOT_FOUND", "function spanner.read_json_s(...) does not exist", "count upper and lower case"),
        ("OUT_OF_RANGE", "start_timestamp is too far in the past", "its `retention_period` is over"),
    ],
)
def test_a_dropped_stream_is_among_the_possibilities(code: str, text: str, advice: str) -> None:
    """The same words may tell of a wrong setting, or of records that are too old."""
    found = str(to_source_error(SETTINGS, code, text))
    assert advice in found
    assert re.search(r"(was|the stream) dropped.*begin a new lake folder", found)


def test_attempts_are_bounded_and_wait_longer_each_time() -> None:
    """Failures in a row end the read, after pauses that double up to the longest."""
    pauses: list[float] = []
    attempts = Attempts(5, 1.0, 3.0, pauses.append)
    error = SourceUnreachable("down")

    for _ in range(4):
        attempts.failed(error)
    with pytest.raises(SourceUnreachable):
        attempts.failed(error)

    limits = [(0.5, 1.0), (1.0, 2.0), (1.5, 3.0), (1.5, 3.0)]
    assert all(low <= pause <= high for pause, (low, high) in zip(pauses, limits, strict=True))


def test_progress_forgives_failures() -> None:
    """A source that answers now and then is read to the end."""
    attempts = Attempts(2, 0.0, 0.0, lambda _: None)

    for _ in range(10):
        attempts.failed(SourceUnreachable("down"))
        attempts.progressed()

    assert attempts.failures == 0


def test_what_cannot_pass_is_not_tried_again() -> None:
    """An error that stays is raised at once."""
    with pytest.raises(AccessDenied):
        Attempts(5, 1.0, 1.0, lambda _: pytest.fail("waited")).failed(AccessDenied("no"))


def test_a_silent_partition_is_asked_anew_once() -> None:
    """The second silence ends the read, whatever came in between, and however many attempts are left."""
    attempts = Attempts(9, 0.0, 0.0, lambda _: None)
    attempts.failed(PartitionStuck("silent"))
    attempts.progressed()
    attempts.failed(SourceUnreachable("down"))

    with pytest.raises(PartitionStuck):
        attempts.failed(PartitionStuck("silent"))
