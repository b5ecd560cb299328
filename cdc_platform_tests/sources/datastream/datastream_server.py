"""A gRPC server with the methods of Datastream's API for a stream's state, which a test sets."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import grpc  # type: ignore[import-untyped] # ships no types
from google.cloud.datastream_v1.types import (
    GetStreamRequest,
    ListStreamObjectsRequest,
    ListStreamObjectsResponse,
    Stream,
    StreamObject,
)

from cdc_platform.sources.datastream.settings.stream_settings import StreamSettings

SERVICE: Final = "google.cloud.datastream.v1.Datastream"
STREAM: Final = "projects/bank/locations/europe-west1/streams/accounts"
DEFAULT_PAGE_SIZE: Final = 50
MAX_PAGE_SIZE: Final = 1000


@dataclass(frozen=True)
class Refusal:
    """A status that the server answers to one call instead of what it holds."""

    code: "grpc.StatusCode"
    text: str = ""


@dataclass
class DatastreamServer:
    """Streams by name, their objects, and what the next calls meet."""

    host: str
    streams: dict[str, Stream] = field(default_factory=dict)
    objects: dict[str, list[StreamObject]] = field(default_factory=dict)
    refusals: list[Refusal | None] = field(default_factory=list)
    """Taken one a call; None lets a call through. None are left: all calls are let through."""
    max_page_size: int = MAX_PAGE_SIZE
    delay_s: float = 0.0
    calls: list[str] = field(default_factory=list)
    page_tokens: list[str] = field(default_factory=list)
    """The token of each page that was asked for."""
    is_over: threading.Event = field(default_factory=threading.Event)

    def settings(self, stream: str = STREAM, **changes: Any) -> StreamSettings:
        """Return settings that lead here and lose little time."""
        fields = {"datastream_host": self.host, "backoff_initial_s": 0.001, "backoff_max_s": 0.01, **changes}
        return StreamSettings(stream, **fields)

    def hold(self, state: Any, *objects: StreamObject, name: str = STREAM, **fields: Any) -> None:
        """Hold a stream in a state, given by name or number, with objects."""
        stream = Stream(name=name, display_name="Accounts of the bank", **fields)
        number = Stream.State[state].value if isinstance(state, str) else state
        # The library refuses numbers that it does not know, and a newer server may send them.
        Stream.pb(stream).state = number
        self.streams[name], self.objects[name] = stream, list(objects)

    def get_stream(self, request: GetStreamRequest, context: Any) -> Stream:
        """Answer GetStream."""
        self._begin("GetStream", context)
        return self._found(request.name, context)

    def list_objects(self, request: ListStreamObjectsRequest, context: Any) -> ListStreamObjectsResponse:
        """Answer ListStreamObjects with one page; tokens are positions in the list."""
        self._begin("ListStreamObjects", context)
        self.page_tokens.append(request.page_token)
        self._found(request.parent, context)
        objects = self.objects[request.parent]
        start = int(request.page_token or 0)
        end = start + min(request.page_size or DEFAULT_PAGE_SIZE, self.max_page_size)
        token = str(end) if end < len(objects) else ""
        return ListStreamObjectsResponse(stream_objects=objects[start:end], next_page_token=token)

    def _begin(self, method: str, context: Any) -> None:
        self.calls.append(method)
        refusal = self.refusals.pop(0) if self.refusals else None
        self.is_over.wait(self.delay_s)
        if refusal is not None:
            context.abort(refusal.code, refusal.text)

    def _found(self, name: str, context: Any) -> Stream:
        if name not in self.streams:
            context.abort(grpc.StatusCode.NOT_FOUND, f"Resource '{name}' was not found")
        return self.streams[name]


@contextmanager
def datastream_server() -> Iterator[DatastreamServer]:
    """Yield a server on a separate port, which holds nothing yet."""
    server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
    port = server.add_insecure_port("127.0.0.1:0")
    stream_server = DatastreamServer(f"127.0.0.1:{port}")
    handlers = {
        "GetStream": _handler(stream_server.get_stream, GetStreamRequest, Stream),
        "ListStreamObjects": _handler(
            stream_server.list_objects, ListStreamObjectsRequest, ListStreamObjectsResponse
        ),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    server.start()
    try:
        yield stream_server
    finally:
        stream_server.is_over.set()
        server.stop(None).wait()


def _handler(answer: Callable[[Any, Any], Any], request: Any, response: Any) -> Any:
    return grpc.unary_unary_rpc_method_handler(answer, request.deserialize, response.serialize)


def unused_host() -> str:
    """Return an address of this machine where nothing listens."""
    server = grpc.server(ThreadPoolExecutor(1), options=[("grpc.so_reuseport", 0)])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    server.stop(None).wait()
    return f"127.0.0.1:{port}"
