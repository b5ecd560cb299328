"""A proxy before a Spanner server that adds records to its change streams, which no database has."""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import grpc  # type: ignore[import-untyped] # ships no types
from google.cloud.spanner_v1.types import PartialResultSet

from cdc_platform_tests.sources.spanner.fake_server import to_value
from cdc_platform_tests.sources.spanner.servers import DATA

STREAMING: Final = ("ExecuteStreamingSql", "StreamingRead")
MEMBERS: Final = (
    *("commit_timestamp", "record_sequence", "server_transaction_id"),
    *("is_last_record_in_transaction_in_partition", "table_name", "column_types", "mods", "mod_type"),
    *("value_capture_type", "number_of_records_in_transaction", "number_of_partitions_in_transaction"),
    *("transaction_tag", "is_system_transaction"),
)
_TEXT_OF_COUNTS: Final = MEMBERS[9:11]
_THREADS: Final = 256
_UNBOUNDED: Final = [
    ("grpc.so_reuseport", 0),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
]

Record = dict[str, Any]
"""A data change record as PostgreSQL's dialect has it."""
Addition = Callable[[Record], str]
"""Returns the JSON of a record like another one."""


@dataclass
class Additions:
    """Records to add, each right before one of the stream's own, as often as that one is sent.

    Args:
        left: what is to be added yet.
        accepts: whether a record is one that another may be added to.
    """

    left: list[Addition]
    accepts: Callable[[Record], bool]
    placed: dict[str, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def before(self, record: Record) -> str | None:
        """Return the JSON of what comes before a record of the stream; None for nothing."""
        name = json.dumps([record[member] for member in MEMBERS[:3]])
        with self._lock:
            if name not in self.placed and self.left and self.accepts(record):
                self.placed[name] = self.left.pop(0)(record)
            return self.placed.get(name)

    def to(self, message: bytes) -> bytes:
        """Return a message of a query with what is added to its rows."""
        answer = PartialResultSet.pb(PartialResultSet.deserialize(message))
        rows = list(answer.values)
        del answer.values[:]
        for row in rows:
            for is_json, record in _records(row):
                added = self.before(record)
                if added is not None:
                    answer.values.append(to_value(added if is_json else _structs(json.loads(added))))
            answer.values.append(row)
        return bytes(answer.SerializeToString())


def _records(row: Any) -> Iterator[tuple[bool, Record]]:
    """Yield the data change records of a row, and whether it is one of JSON."""
    if row.HasField("string_value"):
        members = json.loads(row.string_value) if row.string_value.startswith(f'{{"{DATA}"') else {}
        if members:
            yield True, members[DATA]
        return
    for part in row.list_value.values:
        if part.HasField("list_value") and len(part.list_value.values) == 3:
            for record in part.list_value.values[0].list_value.values:
                yield False, _members(record.list_value.values)


def _members(values: Sequence[Any]) -> Record:
    texts = [_plain(value) for value in values]
    members = dict(zip(MEMBERS, texts, strict=True))
    names = ("name", "type", "is_primary_key", "ordinal_position")
    members["column_types"] = [
        dict(zip(names, [name, json.loads(kind), *rest], strict=True))
        for name, kind, *rest in members["column_types"]
    ]
    parts = ("keys", "new_values", "old_values")
    members["mods"] = [dict(zip(parts, map(json.loads, mod), strict=True)) for mod in members["mods"]]
    return members


def _plain(value: Any) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "list_value":
        return [_plain(item) for item in value.list_value.values]
    return None if kind == "null_value" else getattr(value, kind)


def _structs(record_members: Record) -> Any:
    """Return the row of a record as the dialect of Google has it."""
    record = record_members[DATA]
    columns = [
        [
            column["name"],
            json.dumps(column["type"]),
            column["is_primary_key"],
            str(column["ordinal_position"]),
        ]
        for column in record["column_types"]
    ]
    mods = [[json.dumps(part) for part in mod.values()] for mod in record["mods"]]
    counts = {name: str(record[name]) for name in _TEXT_OF_COUNTS}
    struct = {**record, "column_types": columns, "mods": mods, **counts}
    return [[[[struct[name] for name in MEMBERS]], [], []]]


@contextmanager
def adding(host: str, additions: Additions) -> Iterator[str]:
    """Yield the address of a server that answers as another one does, but for what it adds."""
    with grpc.insecure_channel(host, options=_UNBOUNDED) as channel:
        server = grpc.server(
            ThreadPoolExecutor(_THREADS), handlers=[_Passing(channel, additions)], options=_UNBOUNDED
        )
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            server.stop(None).wait()


class _Passing(grpc.GenericRpcHandler):  # type: ignore[misc] # ships no types
    """Passes every call on."""

    def __init__(self, channel: Any, additions: Additions) -> None:
        self._channel, self._additions = channel, additions

    def service(self, handler_call_details: Any) -> Any:
        """Return what answers a call."""
        method = handler_call_details.method
        if method.rpartition("/")[2] not in STREAMING:
            call = self._channel.unary_unary(method)
            return grpc.unary_unary_rpc_method_handler(
                lambda request, context: _passed(call, request, context)
            )
        stream = self._channel.unary_stream(method)

        def answer(request: bytes, context: Any) -> Iterator[bytes]:
            answers = stream(request)
            context.add_callback(answers.cancel)
            try:
                yield from map(self._additions.to, answers)
            except grpc.RpcError as error:
                _fail(context, error)

        return grpc.unary_stream_rpc_method_handler(answer)


def _passed(call: Any, request: bytes, context: Any) -> Any:
    try:
        return call(request)
    except grpc.RpcError as error:
        return _fail(context, error)


def _fail(context: Any, error: Any) -> None:
    context.abort(error.code(), error.details())
