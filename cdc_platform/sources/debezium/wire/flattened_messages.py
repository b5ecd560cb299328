"""Contents of messages: an envelope, or an event flattened by ExtractNewRecordState.

A flattened event is a row with the metadata that the transform adds.
"""

from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from cdc_platform.sources.debezium.wire.envelope import (
    ADDED_PREFIX,
    data_event,
    place_of,
    read_envelope,
    source_of,
)
from cdc_platform.sources.debezium.wire.message_contents import (
    DELETE,
    READ,
    TRUNCATE,
    DataEvent,
    EnvelopeContent,
    MessageUnusable,
    Op,
    SourceInfo,
)
from cdc_platform.sources.debezium.wire.messages import Message
from cdc_platform.sources.debezium.wire.schema_blocks import Fields, fields_of, part_of, payload_of

DELETED: Final = "__deleted"
ADVICE: Final = (
    "Take the transform away, or set its `delete.tombstone.handling.mode=rewrite`, "
    "`replace.null.with.default=false` and `add.fields=op,source.db,source.schema,source.table,source.txId,"
    "source.lsn,source.sequence,source.snapshot,source.ts_us,transaction.total_order`"
)
_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    # a member of an envelope or its source, and the names that the transform may have given it
    "op": ("__op",),
    "name": ("__source_name", "__name"),
    "db": ("__source_db", "__db"),
    "schema": ("__source_schema", "__schema"),
    "table": ("__source_table", "__table"),
    "version": ("__source_version", "__version"),
    "snapshot": ("__source_snapshot", "__snapshot"),
    "txId": ("__source_txId", "__txId"),
    "lsn": ("__source_lsn", "__lsn"),
    "sequence": ("__source_sequence", "__sequence"),
    "commit_lsn": ("__source_commit_lsn", "__commit_lsn"),
    "ts_us": ("__source_ts_us",),
    "ts_ms": ("__source_ts_ms",),
    "id": ("__transaction_id",),
    "total_order": ("__transaction_total_order", "__total_order"),
}
_KNOWN: Final = frozenset({DELETED, *(name for names in _NAMES.values() for name in names)})


def read_content(message: Message) -> EnvelopeContent:
    """Return the content of a message.

    Raises:
        MessageUnusable: this version cannot use its content.
    """
    return read_envelope(message) or _read_flattened(message)


def _read_flattened(message: Message) -> DataEvent:
    """Return the event of a flattened message.

    Raises:
        MessageUnusable: it does not state its operation, or its place in the order of changes.
    """
    row = payload_of(message.value)
    metadata = {
        word: row[name] for word, names in _NAMES.items() for name in names if row.get(name) is not None
    }
    _check_order_fields(metadata, row)
    op = _op_of(metadata, row)
    columns = {name: value for name, value in row.items() if name not in _KNOWN}
    source, fields = _source_of(metadata, message), fields_of(part_of(message.value)[1])
    if fields is not None:
        fields = Fields(field for field in fields if field.get("field") not in _KNOWN)
    images = columns if op is DELETE else None, None if op in (DELETE, TRUNCATE) else columns
    event = data_event(message, op, source, fields, images, place_of(metadata, source))
    return replace(event, is_flat=True)


def _check_order_fields(metadata: Mapping[str, Any], row: Mapping[str, Any]) -> None:
    if not any(name.startswith(ADDED_PREFIX) for name in row):
        raise MessageUnusable(
            "The value is neither an event of Debezium nor a row with order fields besides its columns, so "
            f"nothing shows which change came first. {ADVICE}."
        )
    if "sequence" not in metadata and "lsn" not in metadata:
        raise MessageUnusable(f"The flattened event has no position in the database's log. {ADVICE}.")
    if DELETED not in row:
        raise MessageUnusable(
            "The flattened event does not say whether its row was deleted, and the stream may leave deletes "
            f"out. {ADVICE}."
        )


def _op_of(metadata: Mapping[str, Any], row: Mapping[str, Any]) -> Op:
    """Return the operation.

    Raises:
        MessageUnusable: the event may be an insert or an update, and only updates leave values out.
    """
    if str(row.get(DELETED)).lower() == "true":
        return DELETE
    op = metadata.get("op")
    if op is None and str(metadata.get("snapshot") or "false") != "false":
        return READ
    if op is None:
        raise MessageUnusable(
            "The flattened event does not state whether the row was inserted or updated, and only updates "
            f"leave values out. {ADVICE}."
        )
    if op not in list(Op):
        raise MessageUnusable(f"This version does not know the operation {op!r}.")
    return Op(op)


def _source_of(metadata: Mapping[str, Any], message: Message) -> SourceInfo:
    schema, table = metadata.get("schema"), metadata.get("table")
    if table is None:
        # The transform drops the name; a topic is named PREFIX.SCHEMA.TABLE.
        schema, _, table = message.topic.partition(".")[2].rpartition(".")
    if not table or not schema:
        raise MessageUnusable(f"The flattened event does not say which table it belongs to. {ADVICE}.")
    server = metadata.get("name") or message.topic.partition(".")[0]
    return source_of({**metadata, "name": server, "schema": schema, "table": table})
