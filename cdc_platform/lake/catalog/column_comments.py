"""Descriptions of the columns of the platform's own tables, by table and column."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from cdc_platform.model.base.stored_names import COPIES, CUT, LINEAGE, LOG, RAW
from cdc_platform.model.stream.lineage import PartitionState
from cdc_platform.model.stream.records import ChangeKind, RecordKind


def _one_of(kind: type[StrEnum]) -> str:
    """Return the values of an enumeration, with "or" before the last one."""
    *members, last = kind
    return f"{', '.join(members)} or {last}"


_EVENT: Final = (
    "The event of an event source: when it committed, its identity, the file or topic that it "
    "came by and its place there, the key before a key change, columns whose values were not sent, the "
    "source's own metadata, and why it cannot be used, if so."
)
_CYCLE: Final = "Cycle that wrote the row."
_KEYS: Final = "Key of the row: JSON object from column name to value, in the source's own JSON encoding."

_RAW: Final[Mapping[str, str]] = {
    "cycle": _CYCLE,
    "kind": f"Kind of the record: {_one_of(RecordKind)}.",
    "partition_token": "Partition that delivered the record; empty for the query that a stream begins with.",
    "record_timestamp": "Commit timestamp, timestamp of a heartbeat, start of children, or end of a window; "
    "for events the moment of the cycle that read them.",
    "record_sequence": "Sequence of the record in its transaction and partition, as the source sent it.",
    "record_order": "The ordering key, as text that sorts in the source's order.",
    "server_transaction_id": "Transaction, as the source identifies it.",
    "is_last_record_in_transaction_in_partition": "Whether the partition sends no more of the transaction.",
    "table_name": "Table of the source.",
    "mod_type": "Kind of the change as the source names it, such as INSERT.",
    "value_capture_type": "Which values the record has of a changed row.",
    "column_types": "Columns of the record: JSON array of name, type, is_primary_key and ordinal_position.",
    "mods": "Changed rows of the record: keys, new values and old values, each a JSON object.",
    "number_of_records_in_transaction": "Number of records of the transaction over all partitions.",
    "number_of_partitions_in_transaction": "Number of partitions that deliver records of the transaction.",
    "transaction_tag": "Tag that the application gave the transaction.",
    "is_system_transaction": "Whether the source itself made the transaction, such as deletions by TTL.",
    "child_partitions": "Partitions that continue this one, with their parents.",
    "read_window": "What a read covered, how it ended, and the number of records of each kind.",
    "event": _EVENT,
}
_LOG: Final[Mapping[str, str]] = {
    "cycle": "Cycle that added the change to the log.",
    "ordinal": "Place of the change in the total order of the log; the numbers have gaps.",
    "table_name": "Table of the source.",
    "change_kind": f"Kind of the change: {_one_of(ChangeKind)}.",
    "ordering_key": "The source's ordering key, as text that sorts in the source's order.",
    "commit_timestamp": "When the change committed; for events when the cycle began that read it.",
    "transaction_id": "Transaction of the change.",
    "record_id": "Identity of the source's record.",
    "mod_ordinal": "Place of the change in its record.",
    "records_in_transaction": "Number of records of the transaction over all partitions.",
    "partition_token": "Partition that delivered the change.",
    "keys": _KEYS,
    "previous_keys": "The key before a key change, in the same form; null where the key stayed.",
    "new_values": "Values after the change: JSON object from column name to value.",
    "old_values": "Values before the change, as far as the source sent them.",
    "is_whole_row": "Whether new_values names every column of the row, so that an absent one is NULL.",
    "unavailable_columns": "Columns that have a value which the source did not send.",
    "is_system_transaction": "Whether the source itself made the transaction.",
    "transaction_tag": "Tag that the application gave the transaction.",
    "source_timestamp": "When the change committed at the source.",
}
_LINEAGE: Final[Mapping[str, str]] = {
    "partition_token": "The partition, as the source names it.",
    "partition_key": "Its short name in Dagster and on the command line.",
    "parent_tokens": "Partitions that it continues: one after a split, several after a merge.",
    "state": f"State: {_one_of(PartitionState)}.",
    "start_timestamp": "From when on it has records.",
    "position": "Everything at or before it has been read.",
    "created_cycle": "Cycle that announced it.",
    "running_cycle": "Cycle that first read it; null before.",
    "finished_cycle": "Cycle that read its end; null until then.",
    "continues_parents": "Whether its parents ended where it starts; false if it started while they went on.",
}
_CUTS: Final[Mapping[str, str]] = {
    "cut": "Number of the cut; each is one more than the last.",
    "position": "Everything that committed until then is in the tables of the cut, and nothing after it.",
    "cycle": "Cycle up to which the cut has the log.",
    "tables": "Snapshot of each table and history, by its name.",
    "published_at": "When readers got to see it; less `position`, this is the lag of the cut.",
}
_COPIES: Final[Mapping[str, str]] = {
    "table_name": "Table of the source that is copied.",
    "number": "Number of the attempt: a copy whose version of the source is gone starts over.",
    "position": "The moment whose rows are copied; the change log takes over right after it.",
    "planned_at": "When the copy was planned.",
    "columns": "Columns that are copied: JSON of the source.",
    "chunks": "What each chunk of the copy reads: JSON of the source.",
}

COLUMN_COMMENTS: Final[Mapping[str, Mapping[str, str]]] = {
    RAW: _RAW,
    LOG: _LOG,
    LINEAGE: _LINEAGE,
    CUT: _CUTS,
    COPIES: _COPIES,
}
"""Descriptions for the tables that are assets."""
