"""A Spanner server in front of two: one database is the simulator's, all others are the emulator's.

Beam writes its metadata table to the server that it reads from, and the simulator refuses writes. Beam's
client begins all transactions in one session, and many at a time; Google's emulator keeps one transaction
of a session, and aborts all but one that write. So each transaction gets a separate session there, and
those that write take turns.
"""

import argparse
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import grpc  # type: ignore[import-untyped] # ships no types
from google.cloud.spanner_v1 import types

LOOPBACK: Final = "127.0.0.1"
PATIENCE_S: Final = 20.0
"""Time that a transaction has its turn: its client may have forgotten it."""

_SPANNER: Final = "/google.spanner.v1.Spanner/"
_ADMIN: Final = ".admin."
_PREFIX: Final = "google-cloud-resource-prefix"
_OPTIONS: Final = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
)
_THREADS: Final = 512
"""Every open change stream query waits in a separate thread."""
_OF_THE_CALL: Final = ("user-agent", "grpc-", ":", "te", "content-type", "accept-encoding")
"""Headers that belong to one connection."""
_REQUESTS: Final[dict[str, Any]] = {
    "BeginTransaction": types.BeginTransactionRequest,
    "Commit": types.CommitRequest,
    "ExecuteBatchDml": types.ExecuteBatchDmlRequest,
    "ExecuteSql": types.ExecuteSqlRequest,
    "ExecuteStreamingSql": types.ExecuteSqlRequest,
    "Read": types.ReadRequest,
    "Rollback": types.RollbackRequest,
    "StreamingRead": types.ReadRequest,
}
_ANSWERS: Final[dict[str, Any]] = {
    "BeginTransaction": types.Transaction,
    "ExecuteBatchDml": types.ExecuteBatchDmlResponse,
    "ExecuteSql": types.ResultSet,
    "ExecuteStreamingSql": types.PartialResultSet,
    "Read": types.ResultSet,
    "StreamingRead": types.PartialResultSet,
}


class Turns:
    """Lets one session write at a time."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._writer: str | None = None
        self._until = 0.0

    def take(self, session: str) -> None:
        """Return when it is the turn of a session."""
        with self._changed:
            while self._writer is not None and time.monotonic() < self._until:
                self._changed.wait(1.0)
            self._writer, self._until = session, time.monotonic() + PATIENCE_S

    def end(self, session: str) -> None:
        """End the turn of a session, if it has it."""
        with self._changed:
            if self._writer == session:
                self._writer = None
                self._changed.notify()


@dataclass
class Transactions:
    """The transactions on the emulator, each in a separate session.

    Args:
        channel: to the emulator.
        database: full name of the database in which sessions are made.
    """

    channel: Any
    database: str
    turns: Turns = field(default_factory=Turns)
    sessions: dict[bytes, str] = field(default_factory=dict)
    """By the id of a transaction."""

    def to_emulator(self, method: str, request: Any) -> str:
        """Put a request into the session of its transaction, and return that session."""
        begun = _begun(method, request)
        if begun is None:
            request.session = self.sessions.get(_transaction_id(method, request), request.session)
            return str(request.session)
        request.session = session = self._new_session()
        if method == "BeginTransaction":
            # What a multiplexed session needs, others refuse.
            request.mutation_key = None
        if "read_write" in begun:
            self.turns.take(session)
        return session

    def from_emulator(self, method: str, answer: bytes, session: str) -> None:
        """Keep the session of a transaction that an answer says has begun."""
        if method in _ANSWERS and (number := _begun_id(method, _ANSWERS[method].deserialize(answer))):
            self.sessions[number] = session

    def _new_session(self) -> str:
        create = self.channel.unary_unary(
            f"{_SPANNER}CreateSession",
            request_serializer=types.CreateSessionRequest.serialize,
            response_deserializer=types.Session.deserialize,
        )
        return str(create(types.CreateSessionRequest(database=self.database)).name)


def _begun(method: str, request: Any) -> Any:
    """Return the options of the transaction that a request begins, None if it begins none."""
    if method == "BeginTransaction":
        return request.options
    if method == "Commit":
        return request.single_use_transaction if "single_use_transaction" in request else None
    if method == "Rollback":
        return None
    return request.transaction.begin if "begin" in request.transaction else None


def _transaction_id(method: str, request: Any) -> bytes:
    return bytes(request.transaction_id if method in ("Commit", "Rollback") else request.transaction.id)


def _begun_id(method: str, answer: Any) -> bytes:
    if method == "BeginTransaction":
        return bytes(answer.id)
    first = answer.result_sets[0] if method == "ExecuteBatchDml" else answer
    return bytes(first.metadata.transaction.id)


class Router(grpc.GenericRpcHandler):  # type: ignore[misc] # grpc ships no types
    """Passes calls on to one of two servers as they are, but for the sessions of the emulator's.

    Args:
        simulator: address.
        database: full name of the simulator's database.
        emulator: address.
        other_database: full name of the emulator's database.
    """

    def __init__(self, simulator: str, database: str, emulator: str, other_database: str) -> None:
        self._database = database
        self._simulator = grpc.insecure_channel(simulator, options=_OPTIONS)
        self._emulator = grpc.insecure_channel(emulator, options=_OPTIONS)
        self._transactions = Transactions(self._emulator, other_database)

    def service(self, handler_call_details: Any) -> Any:
        """Return what answers a call."""
        path, headers = handler_call_details.method, dict(handler_call_details.invocation_metadata)
        is_simulated = _ADMIN not in path and headers.get(_PREFIX) == self._database
        method = path.removeprefix(_SPANNER)
        kept = [pair for pair in headers.items() if not pair[0].startswith(_OF_THE_CALL)]

        def answer(request: bytes, context: Any) -> Iterator[bytes]:
            channel = self._simulator if is_simulated else self._emulator
            call = channel.unary_stream(path, request_serializer=_same, response_deserializer=_same)
            try:
                if is_simulated or method not in _REQUESTS:
                    yield from _passed(call, request, kept, context)
                else:
                    yield from self._in_transaction(method, call, request, kept, context)
            except grpc.RpcError as error:
                details = error.trailing_metadata()
                context.set_trailing_metadata([pair for pair in details if pair[0] != "grpc-status"])
                context.abort(error.code(), error.details())

        return grpc.unary_stream_rpc_method_handler(answer, _same, _same)

    def _in_transaction(
        self, method: str, call: Any, request: bytes, headers: list[tuple[str, Any]], context: Any
    ) -> Iterator[bytes]:
        parsed = _REQUESTS[method].deserialize(request)
        session = self._transactions.to_emulator(method, parsed)
        is_over = method in ("Commit", "Rollback")
        try:
            for answer in _passed(call, _REQUESTS[method].serialize(parsed), headers, context):
                self._transactions.from_emulator(method, answer, session)
                yield answer
        except grpc.RpcError:
            is_over = True
            raise
        finally:
            if is_over:
                self._transactions.turns.end(session)


def _passed(call: Any, request: bytes, headers: list[tuple[str, Any]], context: Any) -> Iterator[bytes]:
    answers = call(request, metadata=headers, timeout=context.time_remaining())
    context.add_callback(answers.cancel)
    yield from answers


def _same(message: bytes) -> bytes:
    return message


@contextmanager
def router(
    simulator: str, database: str, emulator: str, other_database: str, *, port: int = 0
) -> Iterator[str]:
    """Yield the address of a router; see `Router`."""
    server = grpc.server(ThreadPoolExecutor(_THREADS), options=_OPTIONS)
    server.add_generic_rpc_handlers((Router(simulator, database, emulator, other_database),))
    actual = server.add_insecure_port(f"{LOOPBACK}:{port}")
    server.start()
    try:
        yield f"{LOOPBACK}:{actual}"
    finally:
        server.stop(None).wait()


def main() -> None:
    """Run a router until it is interrupted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulator", required=True, help="its address")
    parser.add_argument(
        "--database", required=True, help="projects/P/instances/I/databases/D of the simulator"
    )
    parser.add_argument("--emulator", required=True, help="its address")
    parser.add_argument("--other-database", required=True, help="the same of the emulator's database")
    parser.add_argument("--port", type=int, default=9011)
    options = parser.parse_args()
    with router(**vars(options)) as host:
        sys.stdout.write(f"listening on {host}\n")
        sys.stdout.flush()
        threading.Event().wait()


if __name__ == "__main__":
    main()
