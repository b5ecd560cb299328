"""Arrow schemas of the system tables, and the version of their format.

Columns of tables that are assets are described in `lake/catalog/column_comments.py`, which users see.
"""

from typing import Final

import pyarrow as pa

FORMAT_VERSION: Final = 1
"""Version of all persisted schemas below, kept as the table property `cdc.format-version`."""

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")

MOD: Final = pa.struct(
    [("keys", pa.string()), ("new_values", pa.string()), ("old_values", pa.string())],
)
CHILD_PARTITION: Final = pa.struct(
    [("token", pa.string()), ("parent_partition_tokens", pa.list_(pa.string()))],
)
READ_WINDOW: Final = pa.struct(
    [
        ("start_exclusive", TIMESTAMP),
        ("end_inclusive", TIMESTAMP),
        ("outcome", pa.string()),
        ("data_change_records", pa.int64()),
        ("heartbeat_records", pa.int64()),
        ("child_partitions_records", pa.int64()),
        ("error", pa.string()),
    ],
)

RAW_CHANGE_RECORDS: Final = pa.schema(
    [
        ("cycle", pa.int64()),
        ("kind", pa.string()),
        ("partition_token", pa.string()),
        ("record_timestamp", TIMESTAMP),
        ("record_sequence", pa.string()),
        ("record_order", pa.string()),
        ("server_transaction_id", pa.string()),
        ("is_last_record_in_transaction_in_partition", pa.bool_()),
        ("table_name", pa.string()),
        ("mod_type", pa.string()),
        ("value_capture_type", pa.string()),
        ("column_types", pa.string()),
        ("mods", pa.list_(MOD)),
        ("number_of_records_in_transaction", pa.int64()),
        ("number_of_partitions_in_transaction", pa.int64()),
        ("transaction_tag", pa.string()),
        ("is_system_transaction", pa.bool_()),
        ("child_partitions", pa.list_(CHILD_PARTITION)),
        ("read_window", READ_WINDOW),
    ],
)

EVENT: Final = pa.struct(
    [
        # commit time of the change, as the source states it
        ("source_timestamp", TIMESTAMP),
        # duplicates of an event share it
        ("event_id", pa.string()),
        # file, or topic and partition; position counts the events in it, or is its offset
        ("origin", pa.string()),
        ("position", pa.int64()),
        # the key before a key change, JSON as in `keys` of a mod
        ("previous_keys", pa.string()),
        # columns that have a value which the source did not send
        ("unavailable_columns", pa.list_(pa.string())),
        # the source's own metadata, JSON
        ("metadata", pa.string()),
        # the reason why the event cannot be used, and the text of the event; both null for a usable event
        ("fault", pa.string()),
        ("text", pa.string()),
    ],
)

RAW_EVENT_RECORDS: Final = RAW_CHANGE_RECORDS.append(pa.field("event", EVENT))
"""Raw records of an event source, from files or topics: `record_timestamp` is the time of the cycle that read
them, `record_order` the source's ordering key, as text that sorts in the source's order."""

PARTITION_LINEAGE: Final = pa.schema(
    [
        ("partition_token", pa.string()),
        ("partition_key", pa.string()),
        ("parent_tokens", pa.list_(pa.string())),
        ("state", pa.string()),
        ("start_timestamp", TIMESTAMP),
        ("position", TIMESTAMP),
        ("created_cycle", pa.int64()),
        ("running_cycle", pa.int64()),
        ("finished_cycle", pa.int64()),
        ("continues_parents", pa.bool_()),
    ],
)

CHANGE_LOG: Final = pa.schema(
    [
        ("cycle", pa.int64()),
        ("ordinal", pa.int64()),
        ("table_name", pa.string()),
        ("change_kind", pa.string()),
        ("ordering_key", pa.string()),
        ("commit_timestamp", TIMESTAMP),
        ("transaction_id", pa.string()),
        ("record_id", pa.string()),
        ("mod_ordinal", pa.int32()),
        ("records_in_transaction", pa.int64()),
        ("partition_token", pa.string()),
        ("keys", pa.string()),
        ("previous_keys", pa.string()),
        ("new_values", pa.string()),
        ("old_values", pa.string()),
        ("is_whole_row", pa.bool_()),
        ("unavailable_columns", pa.list_(pa.string())),
        ("is_system_transaction", pa.bool_()),
        ("transaction_tag", pa.string()),
    ],
)

EVENT_LOG: Final = CHANGE_LOG.append(pa.field("source_timestamp", TIMESTAMP))
"""The log of an event source: `commit_timestamp` is the start of the cycle that read a change, which defines
cuts; `source_timestamp` is the time of its commit at the source."""

READ_PROGRESS_ROWS: Final = pa.schema(
    [
        ("cycle", pa.int64()),
        ("path", pa.string()),
        # modification time and size of the file, which change when it is rewritten;
        # for the path of a failed read, the state of its retries: model/stream/unread.py
        ("version", pa.string()),
    ],
)

DELETION_MARKER_ROWS: Final = pa.schema(
    [
        ("cycle", pa.int64()),
        ("table_name", pa.string()),
        # key and ordering key of the deletion, as in the change log
        ("keys", pa.string()),
        ("ordering_key", pa.string()),
        ("commit_timestamp", TIMESTAMP),
    ],
)

CUTS: Final = pa.schema(
    [
        ("cut", pa.int64()),
        ("position", TIMESTAMP),
        ("cycle", pa.int64()),
        ("tables", pa.map_(pa.string(), pa.int64())),
        ("published_at", TIMESTAMP),
    ],
)

COPY_ROWS: Final = pa.schema(
    [
        ("table_name", pa.string()),
        ("number", pa.int64()),
        ("position", TIMESTAMP),
        ("planned_at", TIMESTAMP),
        ("columns", pa.string()),
        ("chunks", pa.list_(pa.string())),
    ],
)

CHECK_RESULT_ROWS: Final = pa.schema(
    [
        ("name", pa.string()),
        # key of the asset that the check is on, such as `bank/accounts`
        ("asset", pa.string()),
        ("passed", pa.bool_()),
        # whether a failure only warns
        ("is_warning", pa.bool_()),
        ("ran_at", TIMESTAMP),
        ("summary", pa.string()),
        # whether only what was new was examined; NULL in rows of earlier versions
        ("is_partial", pa.bool_()),
    ],
)

QUARANTINE_ROWS: Final = pa.schema(
    [
        ("cycle", pa.int64()),
        ("reason", pa.string()),
        ("partition_token", pa.string()),
        ("record_timestamp", TIMESTAMP),
        ("transaction_id", pa.string()),
        ("record_id", pa.string()),
        ("table_name", pa.string()),
        # the record as it came, as JSON, so that it can be replayed
        ("record", pa.string()),
        # file, or topic and partition; null for change streams
        ("origin", pa.string()),
        # when its replay was asked for, null while it was not; the newest cycle that had been read then; and
        # what a replay reads: model/stream/quarantined_records.py, ReplaySource
        ("replayed_at", TIMESTAMP),
        ("replayed_cycle", pa.int64()),
        ("replayed_from", pa.string()),
    ],
)

SCHEMA_CHANGES: Final = pa.schema(
    [
        ("cycle", pa.int64()),
        # order within the cycle
        ("number", pa.int64()),
        # model/schema/schema_events.py, SchemaChange
        ("change", pa.string()),
        # null for what concerns the change stream as a whole
        ("table_name", pa.string()),
        # name of a column or of an option of the change stream, null for what concerns the whole table
        ("name", pa.string()),
        # JSON of a column's type, of a list of columns, or text of an option's value; null where it is gone
        ("value", pa.string()),
        ("previous_value", pa.string()),
        ("is_primary_key", pa.bool_()),
        ("ordinal_position", pa.int64()),
        # commit timestamp of the first change that it holds for; null: it was so when the pipeline began
        ("since", TIMESTAMP),
        # ordering key of the first event of that timestamp that it holds for; empty: it holds for all
        ("since_order", pa.string()),
    ],
)
