"""A gRPC server that implements as much of Spanner as a reader needs, and answers what a test wrote down."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import grpc  # type: ignore[import-untyped] # ships no types
from google.cloud.spanner_v1.types import (
    CreateSessionRequest,
    ExecuteSqlRequest,
    PartialResultSet,
    ReadRequest,
    Session,
    StructType,
    Type,
    TypeCode,
)
from google.protobuf.struct_pb2 import Value  # type: ignore[import-untyped] # ships no types

from cdc_platform.model.base.timestamps import from_rfc3339
from cdc_platform.sources.spanner.spanner_settings import SpannerSettings
from cdc_platform.sources.spanner.stream.decode import DATA_FIELDS, KIND_FIELDS

_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")
SERVICE: Final = "google.spanner.v1.Spanner"

Plain = str | bool | float | None | Sequence["Plain"]


def to_value(plain: Plain) -> Any:
    """Return a protobuf value; integers are texts, as Spanner sends them."""
    if plain is None:
        return Value(null_value=0)
    if isinstance(plain, bool):
        return Value(bool_value=plain)
    if isinstance(plain, str):
        return Value(string_value=plain)
    if isinstance(plain, int | float):
        return Value(number_value=plain)
    value = Value()
    value.list_value.SetInParent()
    value.list_value.values.extend(to_value(item) for item in plain)
    return value


def data_record(
    commit: str,
    transaction: str = "t1",
    sequence: str = "00000000",
    table: str = "accounts",
    mods: Sequence[Sequence[str | None]] = (('{"id":"1"}', '{"balance":"5"}', "{}"),),
    records: int | str = 1,
) -> Plain:
    """Return a data change record of an update."""
    column: Plain = ["id", '{"code":"INT64"}', True, "1"]
    return [
        *(commit, sequence, transaction, True, table, [column], list(mods), "UPDATE", "NEW_ROW"),
        *(str(records), "1", "", False),
    ]


def json_data_record(commit: str, transaction: str = "t1", **changes: Any) -> dict[str, Any]:
    """Return a data change record of an update as PostgreSQL databases write it, with other fields."""
    fields = {
        "commit_timestamp": commit,
        "record_sequence": "00000000",
        "server_transaction_id": transaction,
        "is_last_record_in_transaction_in_partition": True,
        "table_name": "accounts",
        "column_types": [
            {"name": "id", "type": {"code": "INT64"}, "is_primary_key": True, "ordinal_position": 1}
        ],
        "mods": [{"keys": {"id": "1"}, "new_values": {"balance": "5"}, "old_values": {}}],
        "mod_type": "UPDATE",
        "value_capture_type": "NEW_ROW",
        "number_of_records_in_transaction": 1,
        "number_of_partitions_in_transaction": 1,
        "transaction_tag": "",
        "is_system_transaction": False,
    }
    return {"data_change_record": {**fields, **changes}}


def change_row(
    *, data: Sequence[Plain] = (), heartbeats: Sequence[str] = (), children: Sequence[Plain] = ()
) -> Plain:
    """Return the value of one row of a change stream query."""
    return [[list(data), [[heartbeat] for heartbeat in heartbeats], list(children)]]


def child_record(start: str, token: str, *parents: str | None, sequence: str = "00000001") -> Plain:
    """Return a child partitions record with one child."""
    return [start, sequence, [[token, list(parents)]]]


@dataclass(frozen=True)
class Answer:
    """Answer to one query: rows of values, and a status if it fails after them."""

    rows: Sequence[Sequence[Plain]] = ()
    code: "grpc.StatusCode | None" = None
    text: str = ""
    columns: int = 1
    json: bool = False
    """Whether the only column is one of JSON, as in a PostgreSQL database."""
    has_tokens: bool = False
    """Whether each row's message carries a resume token: the number of rows so far, as text."""

    @property
    def row_type(self) -> StructType:
        """The types of the columns."""
        if self.json:
            return StructType(fields=[StructType.Field(name="read_json_s", type_=Type(code=TypeCode.JSON))])
        return change_record_type() if self.columns == 1 else _columns(self.columns)


@dataclass
class FakeServer:
    """The answers still to give, the last of them for ever, and the requests so far."""

    host: str
    answers: list[Answer]
    requests: list[Any] = field(default_factory=list)
    sessions: list[CreateSessionRequest] = field(default_factory=list)

    def settings(self, **changes: Any) -> SpannerSettings:
        """Return settings that lead here and lose little time."""
        fields: dict[str, Any] = {"backoff_initial_s": 0.001, "max_attempts": 3, "dialect": "googlesql"}
        fields |= {"partition_mode": "IMMUTABLE_KEY_RANGE", **changes}
        return SpannerSettings("p", "i", "d", "stream", emulator_host=self.host, **fields)

    def create_session(self, request: CreateSessionRequest, _context: Any) -> Session:
        """Answer CreateSession."""
        self.sessions.append(request)
        return Session(name=f"{request.database}/sessions/{len(self.sessions)}")

    def execute(self, request: ExecuteSqlRequest | ReadRequest, context: Any) -> Iterator[PartialResultSet]:
        """Answer ExecuteStreamingSql and StreamingRead, with one message a row."""
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        yield PartialResultSet(metadata={"row_type": answer.row_type})
        for number, row in enumerate(filter(_is_due(request), answer.rows), 1):
            message = PartialResultSet(resume_token=str(number).encode() if answer.has_tokens else b"")
            PartialResultSet.pb(message).values.extend(map(to_value, row))
            yield message
        if answer.code is not None:
            context.abort(answer.code, answer.text)


def _is_due(request: ExecuteSqlRequest | ReadRequest) -> Callable[[Sequence[Plain]], bool]:
    """Return whether a row may answer a request: a change stream sends nothing older than its start."""
    sent = {} if isinstance(request, ReadRequest) else dict(ExecuteSqlRequest.pb(request).params)
    start = sent.get("start_timestamp") or sent.get("p1")
    if start is None:
        return lambda _row: True
    return lambda row: all(from_rfc3339(start) <= from_rfc3339(moment) for moment in _TIME.findall(str(row)))


def change_record_type(data_fields: Iterable[str] = DATA_FIELDS) -> StructType:
    """Return the type of the only column of a change stream query."""
    kinds = [_array_of(name, data_fields if name == KIND_FIELDS[0] else ()) for name in KIND_FIELDS]
    record = Type(code=TypeCode.STRUCT, struct_type=StructType(fields=kinds))
    array = Type(code=TypeCode.ARRAY, array_element_type=record)
    return StructType(fields=[StructType.Field(name="ChangeRecord", type_=array)])


@contextmanager
def fake_server(*answers: Answer) -> Iterator[FakeServer]:
    """Yield a server on a separate port."""
    server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
    port = server.add_insecure_port("127.0.0.1:0")
    fake = FakeServer(f"127.0.0.1:{port}", list(answers))
    create = grpc.unary_unary_rpc_method_handler(
        fake.create_session, CreateSessionRequest.deserialize, Session.serialize
    )
    execute, read = (
        grpc.unary_stream_rpc_method_handler(
            fake.execute, request_type.deserialize, PartialResultSet.serialize
        )
        for request_type in (ExecuteSqlRequest, ReadRequest)
    )
    handlers = {"CreateSession": create, "ExecuteStreamingSql": execute, "StreamingRead": read}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    server.start()
    try:
        yield fake
    finally:
        server.stop(None).wait()


def _array_of(name: str, fields: Iterable[str]) -> StructType.Field:
    struct = StructType(fields=[StructType.Field(name=field_name) for field_name in fields])
    element = Type(code=TypeCode.STRUCT, struct_type=struct)
    return StructType.Field(name=name, type_=Type(code=TypeCode.ARRAY, array_element_type=element))


def _columns(count: int) -> StructType:
    text = Type(code=TypeCode.STRING)
    return StructType(fields=[StructType.Field(name=f"c{number}", type_=text) for number in range(count)])
