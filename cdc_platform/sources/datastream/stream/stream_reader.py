"""Reader of a stream's status in Datastream's API, with its own deadlines and retries.

The contract is https://cloud.google.com/datastream/docs/reference/rpc/google.cloud.datastream.v1.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any, Final, TypeVar

from cdc_platform.errors import AccessDenied, SourceError, SourceNotFound, SourceUnreachable
from cdc_platform.model.base.libraries import optional_library
from cdc_platform.sources.datastream.settings.stream_settings import StreamSettings
from cdc_platform.sources.datastream.stream.stream_state import (
    BackfillState,
    StreamError,
    StreamObject,
    StreamState,
    StreamStatus,
)
from cdc_platform.sources.statuses import Retries, StatusMeaning, error_of_call, find_meaning, local_channel
from cdc_platform.sources.workers import keep_out_of_forks

State = TypeVar("State", StreamState, BackfillState)

PAGE_SIZE: Final = 1000
"""Maximum number of objects per answer of Datastream."""


def read_stream(settings: StreamSettings) -> StreamStatus:
    """Return the state, the errors and all objects of a stream.

    Raises:
        LibraryMissing: google-cloud-datastream is not installed.
        AccessDenied: there are no credentials, or they do not give access to the stream.
        SourceNotFound: the stream does not exist.
        SourceUnreachable: there was no answer in time.
        SourceError: Datastream rejected the request for another reason.
    """
    require_library()
    with closing(_Client(settings)) as client:
        stream = client.stream()
        objects = sorted(
            (_object(stream_object) for stream_object in client.objects()),
            key=lambda stream_object: stream_object.name,
        )
    state = _state(StreamState, stream)
    return StreamStatus(stream.name, stream.display_name, state, _errors(stream.errors), tuple(objects))


def require_library() -> None:
    """Check that the library for a stream's state is installed.

    Raises:
        LibraryMissing: google-cloud-datastream is not installed.
    """
    keep_out_of_forks()
    optional_library("google.cloud.datastream_v1", "datastream")


class _Client:
    """One read of one stream, limited by the deadline of the settings."""

    def __init__(self, settings: StreamSettings) -> None:
        self._settings = settings
        self._end_s = time.monotonic() + settings.deadline_s
        self._attempts = Retries(
            settings.max_attempts, settings.backoff_initial_s, settings.backoff_max_s, self._sleep
        )
        self._api: Any = None

    def stream(self) -> Any:
        """Return the stream as a protobuf message."""
        return self._retry(lambda api: api.get_stream, {"name": self._settings.stream})

    def objects(self) -> Iterator[Any]:
        """Yield the stream's objects as protobuf messages, page after page."""
        token = ""
        while True:
            request = {"parent": self._settings.stream, "page_size": PAGE_SIZE, "page_token": token}
            # The library's pager would request further pages with its own deadline.
            page = self._retry(lambda api: _one_page(api.list_stream_objects), request)
            yield from page.stream_objects
            token = page.next_page_token
            if not token:
                return

    def close(self) -> None:
        """Close the channel."""
        if self._api is not None:
            self._api.transport.close()

    def _retry(self, method: Callable[[Any], Callable[..., Any]], request: dict[str, Any]) -> Any:
        while True:
            try:
                answer = self._once(method, request)
            except SourceUnreachable as error:
                self._attempts.wait_after(error)
                if time.monotonic() >= self._end_s:
                    raise
            else:
                self._attempts.reset()
                return type(answer).pb(answer)

    def _once(self, method: Callable[[Any], Callable[..., Any]], request: dict[str, Any]) -> Any:
        try:
            if self._api is None:
                self._api = _generated_client(self._settings.datastream_host)
            return method(self._api)(request=request, retry=None, timeout=self._timeout_s())
        except Exception as error:
            raise self._translate(error) from error

    def _timeout_s(self) -> float:
        # After the deadline there is still one call, which then fails as any late one does.
        return max(0.001, min(self._settings.call_deadline_s, self._end_s - time.monotonic()))

    def _sleep(self, pause_s: float) -> None:
        time.sleep(max(0.0, min(pause_s, self._end_s - time.monotonic())))

    def _translate(self, error: Exception) -> SourceError:
        title = f"the state of {self._settings.title}"
        return error_of_call(error, title, "datastream_host", partial(to_stream_error, self._settings))


def _one_page(list_method: Callable[..., Any]) -> Callable[..., Any]:
    def first_page(**arguments: Any) -> Any:
        return next(iter(list_method(**arguments).pages))

    return first_page


def _generated_client(host: str | None) -> Any:
    from google.cloud.datastream_v1 import DatastreamClient

    if host is None:
        return DatastreamClient()
    from google.cloud.datastream_v1.services.datastream.transports import DatastreamGrpcTransport

    return DatastreamClient(transport=DatastreamGrpcTransport(channel=local_channel(host)))


def _object(stream_object: Any) -> StreamObject:
    job = stream_object.backfill_job
    errors = (*_errors(stream_object.errors), *_errors(job.errors))
    return StreamObject(_object_name(stream_object), _state(BackfillState, job), errors)


def _object_name(stream_object: Any) -> str:
    """Return the source's name of an object: the parts of its identifier, for any source."""
    identifier = stream_object.source_object
    kind = identifier.WhichOneof("source_identifier")
    parts = [value for _, value in getattr(identifier, kind).ListFields()] if kind else []
    return ".".join(parts) or stream_object.display_name or stream_object.name


def _errors(errors: Any) -> tuple[StreamError, ...]:
    return tuple(
        StreamError(
            error.reason,
            error.message,
            error.error_uuid,
            error.error_time.ToMicroseconds() if error.HasField("error_time") else None,
            tuple(sorted(error.details.items())),
        )
        for error in errors
    )


def _state(kind: type[State], message: Any) -> State:
    """Return the state of a message of the API; UNKNOWN for one that a newer version of the API has."""
    values = message.DESCRIPTOR.fields_by_name["state"].enum_type.values_by_number
    name = values[message.state].name if message.state in values else ""
    return kind.__members__.get(name, kind.UNKNOWN)


_ACCESS_ADVICE: Final = (
    "Give the account of this process roles/datastream.viewer (datastream.streams.get and "
    "datastream.objects.list) in the stream's project"
)
_UNREACHABLE_ADVICE: Final = (
    "Its state is unknown, and its files are still read. Check the network, and `datastream_host` "
    "if one is set; the next run asks again"
)
_REFUSED_ADVICE: Final = (
    "Datastream rejected the request; check `stream`, and `datastream_host` if one is set"
)

MEANINGS: Final = (
    StatusMeaning(
        "PERMISSION_DENIED",
        "has not been used in project",
        AccessDenied,
        "Enable the API datastream.googleapis.com in the stream's project",
    ),
    StatusMeaning("PERMISSION_DENIED", "", AccessDenied, _ACCESS_ADVICE),
    StatusMeaning("UNAUTHENTICATED", "", AccessDenied, _ACCESS_ADVICE),
    StatusMeaning(
        "NOT_FOUND",
        "",
        SourceNotFound,
        "Check `stream`; `gcloud datastream streams list --location=LOCATION` lists them. If it was deleted, "
        "nothing new comes until another one writes to the same place",
    ),
)
"""The first matching row applies."""


def to_stream_error(settings: StreamSettings, code: str, text: str) -> SourceError:
    """Return the platform's error for a gRPC status; its message names the stream and the remedy."""
    meaning = find_meaning(MEANINGS, code, text, transient=_UNREACHABLE_ADVICE, permanent=_REFUSED_ADVICE)
    return meaning.error(
        f"Cannot read the state of {settings.title}. {meaning.advice}. Datastream said {code}: {text}"
    )
