"""Calls for other databases, which go on to an emulator.

A reader such as Beam keeps its progress in a database that it writes, at the same address as the database
that it reads.
"""

from collections.abc import Iterator
from typing import Any, Final

import grpc  # type: ignore[import-untyped] # ships no types

RESOURCE: Final = "google-cloud-resource-prefix"
"""The header in which every client names the database, or what else a call is about."""
_OWN_HEADERS: Final = ("google-cloud-", "x-goog-")
_OPTIONS: Final = (("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1))


class Forwarding:
    """Handles the calls that are not about the simulated database.

    Args:
        host: the address of the emulator.
        database_path: the full name of the simulated database.
    """

    def __init__(self, host: str, database_path: str) -> None:
        self._channel = grpc.insecure_channel(host, options=_OPTIONS)
        self._database_path = database_path

    def service(self, call: Any) -> Any:
        """Return what answers a call, None when the simulator answers it."""
        headers = dict(call.invocation_metadata)
        path, own = headers.get(RESOURCE, ""), self._database_path
        if path == own or path.startswith(f"{own}/"):
            return None
        kept = [(name, text) for name, text in call.invocation_metadata if name.startswith(_OWN_HEADERS)]
        # On the wire a single response is a stream of one.
        forward = self._channel.unary_stream(call.method)

        def answer(request: bytes, context: Any) -> Iterator[bytes]:
            responses = forward(request, metadata=kept, timeout=context.time_remaining())
            context.add_callback(responses.cancel)
            try:
                yield from responses
            except grpc.RpcError as error:
                context.set_trailing_metadata(_without_status(error.trailing_metadata()))
                context.abort(error.code(), error.details())

        return grpc.unary_stream_rpc_method_handler(answer)

    def close(self) -> None:
        """Break off all calls."""
        self._channel.close()


def _without_status(metadata: Any) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in metadata or () if not name.startswith("grpc-")]
