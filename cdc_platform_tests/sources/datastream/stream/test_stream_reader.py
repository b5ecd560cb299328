"""A stream's status, as a server of Datastream's API returns it."""

import sys
import time
from datetime import UTC, datetime

import grpc  # type: ignore[import-untyped] # ships no types
import pytest
from google.cloud.datastream_v1.types import BackfillJob, Error, SourceObjectIdentifier, StreamObject

from cdc_platform.errors import (
    AccessDenied,
    LibraryMissing,
    SourceError,
    SourceNotFound,
    SourceUnreachable,
)
from cdc_platform.model.base.timestamps import from_rfc3339
from cdc_platform.sources.datastream.settings.stream_settings import StreamSettings
from cdc_platform.sources.datastream.stream.stream_reader import read_stream
from cdc_platform.sources.datastream.stream.stream_state import BackfillState, StreamError, StreamState
from cdc_platform_tests.sources.datastream.datastream_server import (
    STREAM,
    DatastreamServer,
    Refusal,
    unused_host,
)

NEW_NUMBER = 99
UNAVAILABLE = Refusal(grpc.StatusCode.UNAVAILABLE, "the server is going down")


def table(number: int, state: str = "COMPLETED") -> StreamObject:
    """Return a table of MySQL with its backfill."""
    return StreamObject(
        name=f"{STREAM}/objects/{number}",
        backfill_job=BackfillJob(state=state),
        source_object=SourceObjectIdentifier(
            mysql_identifier=SourceObjectIdentifier.MysqlObjectIdentifier(
                database="bank", table=f"t{number:03}"
            )
        ),
    )


@pytest.mark.parametrize(
    "name",
    [
        *("NOT_STARTED", "STARTING", "RUNNING", "DRAINING", "PAUSED"),
        *("MAINTENANCE", "FAILED", "FAILED_PERMANENTLY"),
    ],
)
def test_each_state_is_read(stream_server: DatastreamServer, name: str) -> None:
    """Each state of the API arrives as the state of the same name."""
    stream_server.hold(name)
    status = read_stream(stream_server.settings())
    assert (STREAM, "Accounts of the bank", StreamState[name]) == (
        status.name,
        status.display_name,
        status.state,
    )


@pytest.mark.parametrize("number", [0, NEW_NUMBER])
def test_a_state_that_is_not_known_is_reported(stream_server: DatastreamServer, number: int) -> None:
    """Neither a missing state nor one of a later API is taken for another one."""
    stream_server.hold(number)
    assert StreamState.UNKNOWN is read_stream(stream_server.settings()).state


@pytest.mark.parametrize(
    "state", [state for state in BackfillJob.State if state is not BackfillJob.State.STATE_UNSPECIFIED]
)
def test_each_state_of_a_backfill_is_read(stream_server: DatastreamServer, state: BackfillJob.State) -> None:
    """Each state of a backfill arrives as the state of the same name."""
    stream_server.hold("RUNNING", table(1, state.name))
    assert [BackfillState[state.name]] == [
        stream_object.backfill for stream_object in read_stream(stream_server.settings()).objects
    ]


def test_errors_are_read_with_all_that_finds_their_cause(stream_server: DatastreamServer) -> None:
    """Reason, message, uuid, time and details of an error arrive; a time that is missing is none."""
    at = datetime(2026, 1, 31, 8, 0, 0, 250000, tzinfo=UTC)
    full = Error(
        reason="MYSQL_BINLOG_MISSING",
        message="The file mysql-bin.000459 is gone",
        error_uuid="00000000-0000-4000-8000-000000000007",
        error_time=at,
        details={"log_file": "mysql-bin.000459", "database": "bank"},
    )
    stream_server.hold("FAILED_PERMANENTLY", errors=[full, Error(message="short")])
    expected = StreamError(
        "MYSQL_BINLOG_MISSING",
        "The file mysql-bin.000459 is gone",
        "00000000-0000-4000-8000-000000000007",
        from_rfc3339("2026-01-31T08:00:00.25Z"),
        (("database", "bank"), ("log_file", "mysql-bin.000459")),
    )
    assert (expected, StreamError("", "short")) == read_stream(stream_server.settings()).errors


def test_errors_of_an_object_are_those_of_it_and_of_its_backfill(stream_server: DatastreamServer) -> None:
    """Both kinds are read, those of the object first."""
    failed_table = table(1, "FAILED")
    failed_table.errors.append(Error(reason="A", message="event too large"))
    failed_table.backfill_job.errors.append(Error(reason="B", message="no such column"))
    stream_server.hold("RUNNING", failed_table)
    (read,) = read_stream(stream_server.settings()).objects
    assert [error.text for error in read.errors] == ["A: event too large", "B: no such column"]


@pytest.mark.parametrize(
    ("source", "parts", "expected"),
    [
        ("oracle", {"schema": "HR", "table": "JOBS"}, "HR.JOBS"),
        ("mysql", {"database": "bank", "table": "accounts"}, "bank.accounts"),
        ("postgresql", {"schema": "public", "table": "accounts"}, "public.accounts"),
        ("sql_server", {"schema": "dbo", "table": "accounts"}, "dbo.accounts"),
        ("salesforce", {"object_name": "Account"}, "Account"),
        ("mongodb", {"database": "bank", "collection": "accounts"}, "bank.accounts"),
    ],
)
def test_objects_have_the_names_of_their_source(
    stream_server: DatastreamServer, source: str, parts: dict[str, str], expected: str
) -> None:
    """An object of any source has the name that events have for it."""
    identifier = SourceObjectIdentifier({f"{source}_identifier": parts})
    stream_server.hold("RUNNING", StreamObject(name="o", display_name="shown", source_object=identifier))
    assert [expected] == [
        stream_object.name for stream_object in read_stream(stream_server.settings()).objects
    ]


def test_an_object_of_a_source_that_is_not_known_keeps_the_name_that_is_shown(
    stream_server: DatastreamServer,
) -> None:
    """An object without an identifier that the library knows is not lost."""
    stream_server.hold("RUNNING", StreamObject(name="o", display_name="shown"))
    assert [stream_object.name for stream_object in read_stream(stream_server.settings()).objects] == [
        "shown"
    ]


def test_objects_of_several_pages_are_all_read_once(stream_server: DatastreamServer) -> None:
    """Objects come in order of name, for any order and size of the pages."""
    stream_server.max_page_size = 3
    stream_server.hold("RUNNING", *(table(number) for number in reversed(range(8))))
    names = [stream_object.name for stream_object in read_stream(stream_server.settings()).objects]
    assert [f"bank.t{number:03}" for number in range(8)] == names
    assert stream_server.page_tokens == ["", "3", "6"]


def test_pages_are_as_large_as_the_api_gives(stream_server: DatastreamServer) -> None:
    """A thousand objects are one question, not twenty."""
    stream_server.hold("RUNNING", *(table(number) for number in range(1000)))
    assert len(read_stream(stream_server.settings()).objects) == 1000
    assert stream_server.page_tokens == [""]


def test_a_page_that_fails_is_asked_again_alone(stream_server: DatastreamServer) -> None:
    """Pages that were read are kept, and each call counts its attempts from zero."""
    stream_server.max_page_size = 1
    stream_server.hold("RUNNING", table(0), table(1))
    stream_server.refusals = [UNAVAILABLE, UNAVAILABLE, None, UNAVAILABLE, UNAVAILABLE, None, UNAVAILABLE]
    assert len(read_stream(stream_server.settings()).objects) == 2
    assert stream_server.calls == ["GetStream"] * 3 + ["ListStreamObjects"] * 5
    assert stream_server.page_tokens == ["", "1"]


def test_attempts_are_bounded(stream_server: DatastreamServer) -> None:
    """A server that stays unavailable is asked as often as the settings say, and the error is retryable."""
    stream_server.hold("RUNNING")
    stream_server.refusals = [UNAVAILABLE] * 9
    with pytest.raises(SourceUnreachable, match=f"{STREAM}.*its files are still read.*UNAVAILABLE"):
        read_stream(stream_server.settings(max_attempts=4))
    assert stream_server.calls == ["GetStream"] * 4


@pytest.mark.parametrize(
    ("code", "text", "kind", "advice"),
    [
        ("PERMISSION_DENIED", "no", AccessDenied, "roles/datastream.viewer"),
        ("UNAUTHENTICATED", "no", AccessDenied, "roles/datastream.viewer"),
        (
            "PERMISSION_DENIED",
            "Datastream API has not been used in project 7 before or it is disabled",
            AccessDenied,
            "Enable the API datastream.googleapis.com",
        ),
        ("INVALID_ARGUMENT", "no", SourceError, "check `stream`"),
        ("UNIMPLEMENTED", "no", SourceError, "`datastream_host`"),
    ],
)
def test_what_cannot_pass_is_asked_once(
    stream_server: DatastreamServer, code: str, text: str, kind: type[SourceError], advice: str
) -> None:
    """The error is of our tree, and says what to do and what Datastream said."""
    stream_server.hold("RUNNING")
    stream_server.refusals = [Refusal(grpc.StatusCode[code], text)]
    with pytest.raises(SourceError, match=f"{advice}.*Datastream said {code}: {text}") as caught:
        read_stream(stream_server.settings())
    assert (kind, False) == (type(caught.value), caught.value.retryable)
    assert stream_server.calls == ["GetStream"]


def test_a_right_to_the_stream_alone_is_not_enough(stream_server: DatastreamServer) -> None:
    """Objects that may not be listed are an error, not a stream without objects."""
    stream_server.hold("RUNNING", table(1))
    stream_server.refusals = [None, Refusal(grpc.StatusCode.PERMISSION_DENIED)]
    with pytest.raises(AccessDenied, match=r"datastream\.objects\.list"):
        read_stream(stream_server.settings())


def test_a_stream_that_is_not_there_is_not_found(stream_server: DatastreamServer) -> None:
    """The error says how to list the streams that are."""
    with pytest.raises(SourceNotFound, match=f"{STREAM}.*gcloud datastream streams list"):
        read_stream(stream_server.settings())


def test_nobody_who_answers_is_unreachable() -> None:
    """An address without a server is reported as such, soon."""
    settings = StreamSettings(STREAM, datastream_host=unused_host(), backoff_initial_s=0.001)
    begun_s = time.monotonic()
    with pytest.raises(SourceUnreachable, match="Check the network, and `datastream_host`"):
        read_stream(settings)
    assert time.monotonic() - begun_s < 5


def test_a_slow_answer_ends_at_the_deadline_of_the_read(stream_server: DatastreamServer) -> None:
    """A server that accepts calls and does not answer blocks a caller for at most `deadline_s`."""
    stream_server.hold("RUNNING")
    stream_server.delay_s = 30
    begun_s = time.monotonic()
    with pytest.raises(SourceUnreachable, match="DEADLINE_EXCEEDED"):
        read_stream(stream_server.settings(call_deadline_s=0.2, deadline_s=0.5, max_attempts=100))
    assert 0.4 < time.monotonic() - begun_s < 5
    assert 2 <= len(stream_server.calls) <= 4


def test_pages_without_end_end_at_the_deadline(stream_server: DatastreamServer) -> None:
    """The deadline is one of the whole read, not of each page."""
    stream_server.max_page_size = 1
    stream_server.delay_s = 0.05
    stream_server.hold("RUNNING", *(table(number) for number in range(1000)))
    with pytest.raises(SourceUnreachable, match="DEADLINE_EXCEEDED"):
        read_stream(stream_server.settings(deadline_s=0.5))


def test_missing_credentials_are_access_denied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its own host a stream is asked with the credentials of the process."""
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "no-such-file.json")
    with pytest.raises(AccessDenied, match=r"Provide application default credentials.*no-such-file\.json"):
        read_stream(StreamSettings(STREAM))


def test_a_missing_library_is_an_error_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library is optional: nothing but a stream's state needs it."""
    monkeypatch.setitem(sys.modules, "google.cloud.datastream_v1", None)
    with pytest.raises(LibraryMissing, match=r"pip install 'cdc_platform\[datastream\]'"):
        read_stream(StreamSettings(STREAM))
