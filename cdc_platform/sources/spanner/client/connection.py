"""Connection to Spanner: one channel and one session, with its own deadlines and retries.

The stock `Client` retries an unreachable server forever, lets calls take an hour, sets a global metrics
exporter and decodes every value; the generated client below it does none of this.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from cdc_platform.errors import PartitionStuck, SourceError, SourceUnreachable
from cdc_platform.model.base.timestamps import to_rfc3339
from cdc_platform.sources.spanner.client.chunks import RowAssembler
from cdc_platform.sources.spanner.client.failures import to_source_error
from cdc_platform.sources.spanner.client.query import Query, to_request
from cdc_platform.sources.spanner.client.silence import with_silence_limit
from cdc_platform.sources.spanner.client.wire import BOOL_TAG, boolean, rows_parser, text
from cdc_platform.sources.spanner.spanner_settings import SpannerSettings
from cdc_platform.sources.statuses import Retries, error_of_call, local_channel
from cdc_platform.sources.workers import keep_out_of_forks

Texts = tuple[str | None, ...]


class SpannerConnection:
    """Connection to one database; safe to use from several threads, not across a fork."""

    def __init__(self, settings: SpannerSettings) -> None:
        self.settings = settings.with_environment()
        self._lock = threading.Lock()
        self._api: Any = None
        self._calls: dict[type, Any] = {}
        self._session: str | None = None

    def rows(self, query: Query, deadline_s: float | None = None) -> Iterator[list[bytes]]:
        """Yield the rows of one attempt as protobuf values in bytes.

        Raises:
            SourceError: the call failed; `retryable` states whether another attempt makes sense.
        """
        return self.stream_request(
            lambda session: to_request(query, self.settings, session), RowAssembler().rows, deadline_s
        )

    def stream(self, query: Query, assembler: RowAssembler) -> Iterator[list[bytes]]:
        """Yield the rows of one attempt at a change stream query; the assembler stores their fields.

        Raises:
            PartitionStuck: the stream was silent for longer than an idle partition.
            SourceError: the call failed otherwise.
        """
        silence_s = self.settings.longest_silence_s
        return self.stream_request(
            lambda session: to_request(query, self.settings, session), assembler.rows, silence_s=silence_s
        )

    def stream_request(
        self,
        make_request: Callable[[str], Any],
        assemble: Callable[[Iterable[Any]], Iterator[list[bytes]]],
        deadline_s: float | None = None,
        silence_s: float | None = None,
    ) -> Iterator[list[bytes]]:
        """Yield what is assembled from one attempt at a request, which is built for the client's session."""
        messages: Any = None
        try:
            with self._translating():
                messages = self._execute(make_request, deadline_s or self.settings.deadline_s)
                reader = (
                    messages
                    if silence_s is None
                    else with_silence_limit(messages, silence_s, self._stuck_error)
                )
                yield from assemble(reader)
        finally:
            # A reader that stops early must not leave the query running.
            if messages is not None:
                messages.cancel()

    def begin_transaction(self, at_micros: int) -> tuple[str, bytes]:
        """Return a new session, and the id of a new transaction in it that reads at one timestamp.

        Partition tokens expire when their session begins another transaction, so it has its own session.

        Raises:
            SourceError: it failed, with bounded retries.
        """
        session = self._retry(lambda: (self._connect(), self._new_session())[1])
        options = {"read_only": {"read_timestamp": to_rfc3339(at_micros)}}
        transaction = self._retry(
            lambda: self._api.begin_transaction(
                request={"session": session, "options": options}, **self._unary(session)
            )
        )
        return session, bytes(transaction.id)

    def partition_read(
        self, table: str, columns: Sequence[str], session: str, transaction: bytes
    ) -> list[bytes]:
        """Return the partition tokens of a table, with bounded retries.

        Raises:
            SourceError: it failed, with bounded retries.
        """
        request = {"session": session, "transaction": {"id": transaction}, "table": table}
        request |= {"columns": columns, "key_set": {"all_": True}}
        answer = self._retry(lambda: self._api.partition_read(request=request, **self._unary(session)))
        return [bytes(partition.partition_token) for partition in answer.partitions]

    def _unary(self, session: str) -> dict[str, Any]:
        metadata = [*self._metadata(), _routing(session)]
        return {"retry": None, "timeout": self.settings.deadline_s, "metadata": metadata}

    def _retry(self, call: Callable[[], Any]) -> Any:
        attempts = self.attempts()
        while True:
            try:
                with self._translating():
                    return call()
            except SourceUnreachable as error:
                attempts.wait_after(error)

    @contextmanager
    def _translating(self) -> Iterator[None]:
        """Translate exceptions of Google's libraries into errors of the source."""
        try:
            yield
        except SourceError:
            raise
        except Exception as error:
            raise self._translate(error) from error

    def fetch(self, query: Query) -> list[list[bytes]]:
        """Return all rows of a small query; transient failures are retried a limited number of times.

        Raises:
            SourceError: the query failed, after the retries if the failure is transient.
        """
        rows: list[list[bytes]] = self._retry(lambda: list(self.rows(query)))
        return rows

    def fetch_texts(self, query: Query, read_micros: int | None = None) -> list[Texts]:
        """Return all rows of a small query of texts, numbers and booleans, each value as text."""
        query = query if read_micros is None else replace(query, read_micros=read_micros)
        return [tuple(_text(value) for value in row) for row in self.fetch(query)]

    def attempts(self) -> Retries:
        """Return a new count of attempts, with the limits of the settings."""
        settings = self.settings
        return Retries(settings.max_attempts, settings.backoff_initial_s, settings.backoff_max_s)

    def close(self) -> None:
        """Close the channel; the next call opens another one."""
        with self._lock:
            api, self._api, self._session = self._api, None, None
        if api is not None:
            api.transport.close()

    def _execute(self, make_request: Callable[[str], Any], deadline_s: float) -> Any:
        request = make_request(self._connect())
        metadata = [*self._metadata(), _routing(request.session)]
        return self._calls[type(request)](request, timeout=deadline_s, metadata=metadata)

    def _connect(self) -> str:
        with self._lock:
            if self._api is None:
                self._api = _generated_client(self.settings)
                self._calls = _streaming_calls(self._api.transport)
            if self._session is None:
                self._session = self._new_session()
            return self._session

    def _new_session(self) -> str:
        session = {"multiplexed": True, "creator_role": self.settings.database_role or ""}
        answer = self._api.create_session(
            request={"database": self.settings.database_path, "session": session},
            retry=None,
            timeout=self.settings.connect_deadline_s,
            metadata=self._metadata(),
        )
        return str(answer.name)

    def _metadata(self) -> list[tuple[str, str]]:
        return [("google-cloud-resource-prefix", self.settings.database_path)]

    def _stuck_error(self) -> PartitionStuck:
        return PartitionStuck(
            f"A partition of the {self.settings.title} has sent neither records nor heartbeats for "
            f"{self.settings.longest_silence_s:g} s. The others are read on, it holds the watermark, and "
            "every cycle asks it again. If it is only slow, raise `stuck_after_s`; if it stays silent, "
            "report it to Google's support",
        )

    def _translate(self, error: Exception) -> SourceError:
        def of_status(code: str, text: str) -> SourceError:
            if code in ("NOT_FOUND", "UNAUTHENTICATED"):
                # The session may have expired; the next call creates a new one.
                self._session = None
            return to_source_error(self.settings, code, text)

        return error_of_call(error, self.settings.title, "emulator_host", of_status)


def _generated_client(settings: SpannerSettings) -> Any:
    keep_out_of_forks()
    from google.cloud.spanner_v1.services.spanner import SpannerClient as GeneratedClient

    if settings.emulator_host is None:
        return GeneratedClient()
    from google.cloud.spanner_v1.services.spanner.transports import SpannerGrpcTransport

    return GeneratedClient(transport=SpannerGrpcTransport(channel=local_channel(settings.emulator_host)))


def _streaming_calls(transport: Any) -> dict[type, Any]:
    """Return the generated client's calls by the type of request, with values left as bytes; see wire.py."""
    from google.api_core.grpc_helpers import wrap_errors
    from google.cloud.spanner_v1.types import ExecuteSqlRequest, ReadRequest

    methods = {"ExecuteStreamingSql": ExecuteSqlRequest, "StreamingRead": ReadRequest}
    return {
        request_type: wrap_errors(
            transport.grpc_channel.unary_stream(
                f"/google.spanner.v1.Spanner/{method}",
                request_serializer=request_type.serialize,
                response_deserializer=rows_parser(),
            ),
        )
        for method, request_type in methods.items()
    }


def _routing(session: str) -> tuple[str, str]:
    return ("x-goog-request-params", f"session={quote(session, safe='')}")


def _text(value: bytes) -> str | None:
    return str(boolean(value)).lower() if value[0] == BOOL_TAG else text(value)
