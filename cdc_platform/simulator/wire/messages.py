"""Records of a change stream with mutable key ranges, as far as a reader sees them before it gives up.

They are messages of the type `google.spanner.v1.ChangeStreamRecord`: a column of that PROTO in GoogleSQL, and
in PostgreSQL bytes that another function returns, `spanner.read_proto_bytes_STREAM`.
"""

from base64 import b64encode
from collections.abc import Iterable
from typing import Final

from cdc_platform.model.schema.table_schema import ColumnType
from cdc_platform.simulator.wire.simulator_settings import Dialect
from cdc_platform.simulator.wire.values import row_type
from cdc_platform.simulator.wire.wire import string_value

_CODES: Final = {Dialect.GOOGLESQL: "PROTO", Dialect.POSTGRESQL: "BYTES"}


def message_type(dialect: Dialect, function: str) -> bytes:
    """Return the metadata of a query's result."""
    name = "ChangeRecord" if dialect is Dialect.GOOGLESQL else function
    return row_type([(name, ColumnType(_CODES[dialect]))])


def start_row(start_micros: int, tokens: Iterable[str]) -> bytes:
    """Return a partition start record as the value of a row."""
    from google.cloud.spanner_v1.types import ChangeStreamRecord
    from google.protobuf.timestamp_pb2 import Timestamp  # type: ignore[import-untyped] # ships no types

    start = Timestamp()
    start.FromMicroseconds(start_micros)
    record = ChangeStreamRecord.PartitionStartRecord(
        start_timestamp=start, record_sequence="00000000", partition_tokens=list(tokens)
    )
    message = ChangeStreamRecord.serialize(ChangeStreamRecord(partition_start_record=record))
    return string_value(b64encode(message).decode())
