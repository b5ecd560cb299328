"""Row of a record: the common form of all change records, including malformed ones."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple, TypeAlias

from cdc_platform.errors import RecordUnreadable
from cdc_platform.model.base.names import ROOT_TOKEN
from cdc_platform.model.schema.table_schema import ColumnType
from cdc_platform.model.stream.records import RecordKind
from cdc_platform.sources.sound_rows import MAX_TEXT_CHARACTERS, safe_text

_EXCERPT_BYTES: Final = 500
_INT64_BITS: Final = 64
DATA: Final = RecordKind.DATA_CHANGE.value
HEARTBEAT: Final = RecordKind.HEARTBEAT.value
CHILDREN: Final = RecordKind.CHILD_PARTITIONS.value
START: Final = RecordKind.PARTITION_START.value
END: Final = RecordKind.PARTITION_END.value
EVENT: Final = RecordKind.PARTITION_EVENT.value

ModTexts: TypeAlias = tuple[str | None, ...]
"""Keys, new values and old values of each mod, as the source wrote them, all in one row.

One flat tuple of texts costs Python's garbage collector nothing, and a window has many tuples.
"""
MOD_PARTS: Final = 3
Child: TypeAlias = tuple[str, list[str]]
"""Token and parent tokens of a child partition."""


class RecordRow(NamedTuple):
    """One record, with the columns of `RAW_CHANGE_RECORDS` that come from the source, in their order."""

    kind: str
    record_timestamp: int
    record_sequence: str | None = None
    record_order: str | None = None
    server_transaction_id: str | None = None
    is_last_record_in_transaction_in_partition: bool | None = None
    table_name: str | None = None
    mod_type: str | None = None
    value_capture_type: str | None = None
    column_types: str | None = None
    mods: ModTexts | None = None
    number_of_records_in_transaction: int | None = None
    number_of_partitions_in_transaction: int | None = None
    transaction_tag: str | None = None
    is_system_transaction: bool | None = None
    child_partitions: list[Child] | None = None


def check_columns(columns: Sequence[Mapping[str, Any]]) -> None:
    """Check the columns that a record declares, from which its table's schema may be built.

    Raises:
        ValueError: a position exceeds 64 bits, or a key column has no name.
        LookupError, TypeError, AttributeError, RecursionError: a column has no type or position.
    """
    for column in columns:
        ColumnType.from_json(column["type"])
        if column["is_primary_key"] and not column["name"]:
            raise ValueError("a column of the key has no name")
        if column["ordinal_position"].bit_length() >= _INT64_BITS:
            raise ValueError("the position of a column is beyond 64 bits")


def check_table(name: str | None) -> str | None:
    """Return the name of a record's table.

    Raises:
        ValueError: the name is empty.
    """
    if name == "":
        raise ValueError("a table has no name")
    return name


def check_token(token: str) -> str:
    """Return the token of a child partition.

    Raises:
        ValueError: the token is empty, which is the platform's token of the initial query.
    """
    if token == ROOT_TOKEN:
        raise ValueError("a child partition has no token")
    return token


def malformed_row(
    commit_micros: int, transaction_id: str, table: str | None, record_text: str, problem: Exception
) -> RecordRow:
    """Return the row of a data change record without the documented shape, which the log rejects.

    Its only mod has no keys; its new values contain the record, and its old values the problem.
    The time and the transaction determine which records the log must reject with it.

    Args:
        commit_micros: commit time of its transaction.
        transaction_id: identity of its transaction.
        table: its table, if the record names one.
        record_text: the record as the source sent it.
        problem: the decoder's exception.
    """
    sequence = f"malformed-{sha256(record_text.encode(errors='backslashreplace')).hexdigest()[:16]}"
    return RecordRow(
        DATA,
        commit_micros,
        record_sequence=sequence,
        record_order=sequence,
        server_transaction_id=transaction_id,
        table_name=table,
        mods=(None, safe_text(record_text, MAX_TEXT_CHARACTERS), _excerpt(problem)),
    )


def unreadable(change_record: bytes, problem: Exception) -> RecordUnreadable:
    """Return the error of a record that does not have the documented shape."""
    return RecordUnreadable(
        f"A change record has an undocumented shape ({_excerpt(problem)}). Its window stays unread; "
        f"report it with this record: {change_record[:_EXCERPT_BYTES]!r}",
    )


def _excerpt(problem: Exception) -> str:
    return safe_text(repr(problem), _EXCERPT_BYTES)
