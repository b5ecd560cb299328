"""Spanner's gRPC service, as far as readers need it, as functions from requests to responses in bytes."""

import json
import threading
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import count, pairwise
from typing import Any, Final

from cdc_platform.simulator.sql.database import Database, Statement
from cdc_platform.simulator.sql.parameters import parameter_types, parameter_values
from cdc_platform.simulator.sql.reads import Result, chosen_keys
from cdc_platform.simulator.sql.sql import StreamCall
from cdc_platform.simulator.stream.faults import KINT64MAX_1, QueryFault, befall
from cdc_platform.simulator.stream.messages import message_type
from cdc_platform.simulator.wire.chunks import Cursor, Row, messages
from cdc_platform.simulator.wire.moments import Moments, ReadTime, frame_transaction, transaction
from cdc_platform.simulator.wire.problems import STREAMS_ALONE, Refusal, read_only
from cdc_platform.simulator.wire.simulator_settings import Dialect, Fault, PartitionMode
from cdc_platform.simulator.wire.values import (
    BOOL,
    INT64,
    JSON,
    STRING,
    TIMESTAMP,
    in_dialect,
    row_type,
    to_proto,
)
from cdc_platform.simulator.wire.wire import result_set

_DATA_FIELDS: Final = {
    "commit_timestamp": TIMESTAMP,
    "record_sequence": STRING,
    "server_transaction_id": STRING,
    "is_last_record_in_transaction_in_partition": BOOL,
    "table_name": STRING,
    "column_types": {"name": STRING, "type": JSON, "is_primary_key": BOOL, "ordinal_position": INT64},
    "mods": {"keys": JSON, "new_values": JSON, "old_values": JSON},
    "mod_type": STRING,
    "value_capture_type": STRING,
    "number_of_records_in_transaction": INT64,
    "number_of_partitions_in_transaction": INT64,
    "transaction_tag": STRING,
    "is_system_transaction": BOOL,
}
_MAX_SESSIONS: Final = 100
"""Maximum number of sessions per request; like Spanner, the simulator may return fewer than requested."""
_PARTITIONS: Final = 10
_ROWS_PER_PARTITION: Final = 1000
"""Small tables are not divided into partitions."""
_RECORD_FIELDS: Final = {
    "data_change_record": _DATA_FIELDS,
    "heartbeat_record": {"timestamp": TIMESTAMP},
    "child_partitions_record": {
        "start_timestamp": TIMESTAMP,
        "record_sequence": STRING,
        "child_partitions": {"token": STRING, "parent_partition_tokens": [STRING]},
    },
}


class SpannerService:
    """Sessions, transactions and queries of one database."""

    def __init__(self, database: Database) -> None:
        self._database, self._settings = database, database.history.settings
        self._moments = Moments(database.now_micros)
        self._numbers = count(1)
        self._sessions: set[str] = set()

    def create_session(self, request: Any) -> Any:
        """Answer CreateSession."""
        from google.cloud.spanner_v1.types import Session

        if request.database != self._settings.database_path:
            raise Refusal("NOT_FOUND", f"Database not found: {request.database}")
        name = f"{request.database}/sessions/simulated-{next(self._numbers)}"
        self._sessions.add(name)
        return Session.pb(Session(name=name, multiplexed=request.session.multiplexed))

    def batch_create_sessions(self, request: Any) -> Any:
        """Answer BatchCreateSessions."""
        from google.cloud.spanner_v1.types import BatchCreateSessionsResponse, CreateSessionRequest

        single = CreateSessionRequest.pb(CreateSessionRequest(database=request.database))
        response = BatchCreateSessionsResponse.pb(BatchCreateSessionsResponse())
        count = min(request.session_count, _MAX_SESSIONS)
        response.session.extend(self.create_session(single) for _ in range(count))
        return response

    def get_session(self, request: Any) -> Any:
        """Answer GetSession."""
        from google.cloud.spanner_v1.types import Session

        self._check_session(request.name)
        return Session.pb(Session(name=request.name))

    def delete_session(self, request: Any) -> Any:
        """Answer DeleteSession."""
        from google.protobuf.empty_pb2 import Empty  # type: ignore[import-untyped] # ships no types

        self._check_session(request.name)
        self._sessions.discard(request.name)
        return Empty()

    def begin_transaction(self, request: Any) -> Any:
        """Answer BeginTransaction of a read-only transaction."""
        from google.cloud.spanner_v1.types import Transaction

        self._check_session(request.session)
        return Transaction.pb(Transaction()).FromString(self._moments.begin(request.options))

    def rollback(self, request: Any) -> Any:
        """Answer Rollback; reads hold no locks."""
        from google.protobuf.empty_pb2 import Empty

        self._check_session(request.session)
        return Empty()

    def commit(self, request: Any) -> Any:
        """Reject Commit."""
        self._check_session(request.session)
        raise read_only()

    def execute_sql(self, request: Any) -> bytes:
        """Answer ExecuteSql: everything but change streams, in one message."""
        statement, reading = self._statement(request)
        if self._database.stream_call(statement) is not None:
            raise Refusal(
                "INVALID_ARGUMENT",
                f"Change stream queries are not supported for the ExecuteSql API. {STREAMS_ALONE}",
            )
        result = self._result(statement, request)
        rows = [row.values for batch in result.rows(0) for row in batch]
        return result_set(rows, row_type(result.columns) + frame_transaction(reading.transaction))

    def execute_streaming_sql(self, request: Any, is_over: threading.Event) -> Iterator[bytes]:
        """Answer ExecuteStreamingSql."""
        statement, reading = self._statement(request)
        call = self._database.stream_call(statement)
        if call is not None:
            return self._stream(call, request, is_over)
        return self._rows(self._result(statement, request), request, reading)

    def streaming_read(self, request: Any, _is_over: threading.Event) -> Iterator[bytes]:
        """Answer StreamingRead of a table's rows by key."""
        reading = self._reading(request)
        self._database.check_moment(reading.micros)
        reads = self._database.reads
        version = reads.version(request.table, reading.micros)
        columns = reads.columns(version.table, list(request.columns))
        keys = chosen_keys(version, request.key_set)
        first_keys = keys[: request.limit] if request.limit else keys
        result = _part(reads.result(version, columns, first_keys), request.partition_token)
        return self._rows(result, request, reading)

    def partition_query(self, request: Any) -> Any:
        """Answer PartitionQuery: ranges of rows in the order of the answer."""
        statement, reading = self._statement(request)
        total = sum(map(len, self._database.answer(statement).rows(0)))
        return self._partitions(total, request, reading)

    def partition_read(self, request: Any) -> Any:
        """Answer PartitionRead: ranges of rows in the order of their keys."""
        reading = self._reading(request)
        version = self._database.reads.version(request.table, reading.micros)
        return self._partitions(len(chosen_keys(version, request.key_set)), request, reading)

    def _partitions(self, total: int, request: Any, reading: ReadTime) -> Any:
        from google.cloud.spanner_v1.types import Partition, PartitionResponse

        count = request.partition_options.max_partitions or _PARTITIONS
        parts = max(1, min(count, total // _ROWS_PER_PARTITION))
        cuts = [total * number // parts for number in range(parts + 1)]
        tokens = [json.dumps(pair).encode() for pair in pairwise(cuts)]
        partitions = [Partition(partition_token=token) for token in tokens]
        response = PartitionResponse.pb(PartitionResponse(partitions=partitions))
        response.transaction.MergeFromString(reading.transaction)
        return response

    def _result(self, statement: Statement, request: Any) -> Result:
        return _part(self._database.answer(statement), request.partition_token)

    def _rows(self, result: Result, request: Any, reading: ReadTime) -> Iterator[bytes]:
        token = bytes(request.resume_token)
        skip = Cursor.from_token(token).rows if token else 0
        metadata = row_type(result.columns) + frame_transaction(reading.transaction)
        return messages(metadata, result.rows(skip), self._settings.chunk_bytes)

    def _stream(self, call: StreamCall, request: Any, is_over: threading.Event) -> Iterator[bytes]:
        fate = self._database.faults.fate(call.query)
        rows = self._database.stream.rows(call.query, bytes(request.resume_token), is_over)
        batches: Iterator[list[Row]] = befall(fate, rows, self._settings.stall_s, is_over)
        metadata = self._record_metadata(call) + self._read_timestamp(fate, request)
        return messages(metadata, batches, self._settings.chunk_bytes, has_tokens=fate.has_tokens)

    def _record_metadata(self, call: StreamCall) -> bytes:
        if self._settings.partition_mode is PartitionMode.MUTABLE_KEY_RANGE:
            return message_type(self._settings.dialect, call.function)
        if self._settings.dialect is Dialect.POSTGRESQL:
            return row_type([(call.function, in_dialect(JSON, Dialect.POSTGRESQL))])
        return self._change_record_type

    @cached_property
    def _change_record_type(self) -> bytes:
        from google.cloud.spanner_v1.types import ResultSetMetadata, StructType

        fields = [StructType.Field(name="ChangeRecord", type_=_nested_type(_RECORD_FIELDS))]
        metadata = ResultSetMetadata(row_type=StructType(fields=fields))
        return bytes(ResultSetMetadata.serialize(metadata))

    def _read_timestamp(self, fate: QueryFault, request: Any) -> bytes:
        wants = request.transaction.single_use.read_only.return_read_timestamp
        if fate.fault is not Fault.READ_TIMESTAMP or not wants:
            return b""
        return frame_transaction(transaction(b"", KINT64MAX_1))

    def _statement(self, request: Any) -> tuple[Statement, ReadTime]:
        from google.cloud.spanner_v1.types import ExecuteSqlRequest

        reading = self._reading(request)
        types = parameter_types(request)
        values = parameter_values(request, types)
        mode = getattr(request, "query_mode", ExecuteSqlRequest.QueryMode.NORMAL)
        is_plan = mode == ExecuteSqlRequest.QueryMode.PLAN
        strong = reading.is_strong_single_use
        return Statement(request.sql, values, reading.micros, strong, is_plan, types), reading

    def _reading(self, request: Any) -> ReadTime:
        self._check_session(request.session)
        return self._moments.reading(request.transaction)

    def _check_session(self, name: str) -> None:
        if name not in self._sessions:
            raise Refusal("NOT_FOUND", f"Session not found: {name}")


def _part(result: Result, partition_token: bytes) -> Result:
    """Return the part of an answer for one of our partition tokens."""
    if not partition_token:
        return result
    try:
        first, end = json.loads(partition_token)
    except (ValueError, TypeError) as error:
        raise Refusal("INVALID_ARGUMENT", "Invalid partition token.") from error

    def rows(skip: int) -> Iterator[list[Row]]:
        remaining = end - first - skip
        for batch in result.rows(first + skip):
            if remaining > 0:
                yield [Row(row.values, _rewind(row, first)) for row in batch[:remaining]]
            remaining -= len(batch)
            if remaining <= 0:
                return

    return Result(result.columns, rows)


def _rewind(row: Row, by_rows: int) -> Cursor:
    return Cursor(0, (row.position.rows if row.position else 0) - by_rows)


def _nested_type(fields: Mapping[str, Any]) -> Any:
    """Return the type of an array of structs; a list is an array of its only item."""
    from google.cloud.spanner_v1.types import StructType, Type, TypeCode

    members = []
    for name, of_type in fields.items():
        if isinstance(of_type, Mapping):
            member_type = _nested_type(of_type)
        elif isinstance(of_type, list):
            member_type = Type(code=TypeCode.ARRAY, array_element_type=to_proto(of_type[0]))
        else:
            member_type = to_proto(of_type)
        members.append(StructType.Field(name=name, type_=member_type))
    struct = Type(code=TypeCode.STRUCT, struct_type=StructType(fields=members))
    return Type(code=TypeCode.ARRAY, array_element_type=struct)
