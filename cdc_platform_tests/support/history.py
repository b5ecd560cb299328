"""Reference in plain Python: what a serial history must become in a change stream, the log and the tables.

It shares no code with the platform beyond the vocabulary, so that both can only agree by being right.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from itertools import groupby
from typing import Any, Final, TypeAlias

from cdc_platform.model.base.schemas import RAW_CHANGE_RECORDS
from cdc_platform.model.base.timestamps import to_datetime
from cdc_platform.model.schema.table_schema import ColumnType, TableSchema
from cdc_platform.model.stream.ordering_key import record_order
from cdc_platform.model.stream.records import ChangeKind, ModType, RecordKind, ValueCaptureType

JsonValue: TypeAlias = str | int | float | bool | list[Any] | None
Key: TypeAlias = tuple[JsonValue, ...]
Row: TypeAlias = Mapping[str, JsonValue]
RawRow: TypeAlias = dict[str, Any]
Locate: TypeAlias = Callable[[str, Key, int], str]
"""Table, key and commit timestamp to the token of the partition that returns the change."""

NULL_ROW: Final[Mapping[str, None]] = dict.fromkeys(RAW_CHANGE_RECORDS.names)
_HIGH: Final = 0x963D1AF435FB3E79


class SequenceForm(Enum):
    """Form in which the source writes `record_sequence`."""

    PADDED = "padded"
    """`0000000a`."""
    SHORT = "short"
    """`a`, so that the order of the texts is wrong."""
    HIGH_LOW = "high_low"
    """`963d1af435fb3e79-00000000`."""

    def write(self, number: int) -> str:
        """Return the sequence with a number; a higher number comes later."""
        if self is SequenceForm.HIGH_LOW:
            return f"{_HIGH + number // 2:016x}-{number % 2:08x}"
        return f"{number:08x}" if self is SequenceForm.PADDED else f"{number:x}"


@dataclass(frozen=True)
class RowChange:
    """Change of a row by a transaction; `old` and `new` are all value columns before and after."""

    table: str
    key: Key
    mod_type: ModType
    old: Row | None
    new: Row | None
    named: frozenset[str] = frozenset()
    """Columns that an update assigns, with or without changing them."""


@dataclass(frozen=True)
class Transaction:
    """A committed transaction; its changes are in the order in which they take effect."""

    commit_micros: int
    transaction_id: str
    changes: tuple[RowChange, ...]
    capture: ValueCaptureType
    sequence_form: SequenceForm = SequenceForm.PADDED
    tag: str = ""
    is_system: bool = False


@dataclass(frozen=True)
class History:
    """Transactions in commit order; those of one commit timestamp touch different rows."""

    tables: tuple[TableSchema, ...]
    transactions: tuple[Transaction, ...]
    start_micros: int

    @property
    def end_micros(self) -> int:
        """The last commit timestamp, or the start when nothing was committed."""
        return max(
            (transaction.commit_micros for transaction in self.transactions), default=self.start_micros
        )

    def table(self, name: str) -> TableSchema:
        """Return the schema of a table."""
        return next(table for table in self.tables if table.name == name)


@dataclass(frozen=True)
class DataRecord:
    """A data change record, before it is a row."""

    token: str
    transaction: Transaction
    table: TableSchema
    changes: tuple[RowChange, ...]
    number: int
    is_last_in_partition: bool = False
    records_in_transaction: int = 0
    partitions_in_transaction: int = 0

    @property
    def sequence(self) -> str:
        """The record sequence as the source writes it: monotone in the transaction, with gaps."""
        return self.transaction.sequence_form.write(3 * self.number + 1)

    @property
    def record_id(self) -> str:
        """The identity that the change log gives it."""
        return f"{self.transaction.transaction_id}/{self.sequence}"


@dataclass(frozen=True)
class LogEntry:
    """The essential columns of one row of the change log."""

    table_name: str
    change_kind: ChangeKind
    commit_micros: int
    transaction_id: str
    record_id: str
    mod_ordinal: int
    keys: str
    new_values: str
    old_values: str
    is_whole_row: bool


def tables_at(history: History, at_micros: int) -> dict[str, dict[Key, Row]]:
    """Return every table as the transactions committed at or before a moment leave it."""
    tables: dict[str, dict[Key, Row]] = {table.name: {} for table in history.tables}
    for transaction in history.transactions:
        if transaction.commit_micros <= at_micros:
            for change in transaction.changes:
                if change.new is None:
                    del tables[change.table][change.key]
                else:
                    tables[change.table][change.key] = change.new
    return tables


def data_records(history: History, locate: Locate) -> tuple[DataRecord, ...]:
    """Return the records of all transactions: transaction by transaction, each in record order."""
    return tuple(
        record for transaction in history.transactions for record in _records_of(history, transaction, locate)
    )


def expected_log(history: History, locate: Locate, at_micros: int | None = None) -> list[LogEntry]:
    """Return the log of everything committed at or before a moment, in its order."""
    records = [
        record
        for record in data_records(history, locate)
        if at_micros is None or record.transaction.commit_micros <= at_micros
    ]
    records.sort(key=lambda r: (r.transaction.commit_micros, r.transaction.transaction_id, r.number))
    return [
        _log_entry(record, change, ordinal)
        for record in records
        for ordinal, change in enumerate(record.changes)
    ]


def raw_row(record: DataRecord, cycle: int) -> RawRow:
    """Return the record as a row of RAW_CHANGE_RECORDS."""
    transaction = record.transaction
    return {
        **NULL_ROW,
        "cycle": cycle,
        "kind": RecordKind.DATA_CHANGE.value,
        "partition_token": record.token,
        "record_timestamp": to_datetime(transaction.commit_micros),
        "record_sequence": record.sequence,
        "record_order": record_order(record.sequence),
        "server_transaction_id": transaction.transaction_id,
        "is_last_record_in_transaction_in_partition": record.is_last_in_partition,
        "table_name": record.table.name,
        "mod_type": record.changes[0].mod_type.value,
        "value_capture_type": transaction.capture.value,
        "column_types": column_types_json(record.table, _shown(record.changes[0], transaction.capture)),
        "mods": [mod(record.table, change, transaction.capture) for change in record.changes],
        "number_of_records_in_transaction": record.records_in_transaction,
        "number_of_partitions_in_transaction": record.partitions_in_transaction,
        "transaction_tag": transaction.tag,
        "is_system_transaction": transaction.is_system,
    }


def mod(table: TableSchema, change: RowChange, capture: ValueCaptureType) -> dict[str, str]:
    """Return keys, new and old values as a change stream with this capture type writes them."""
    shown = _shown(change, capture)
    new = {name: value for name, value in (change.new or {}).items() if name in shown}
    keys = {column.name: part for column, part in zip(table.key_columns, change.key, strict=True)}
    return {
        "keys": json_text(keys),
        "new_values": json_text(new),
        "old_values": json_text(_old_values(change, capture)),
    }


def column_types_json(table: TableSchema, value_columns: frozenset[str]) -> str:
    """Return `column_types` of a record that shows these value columns."""
    columns = [column for column in table.columns if column.is_primary_key or column.name in value_columns]
    return json.dumps(
        [
            {
                "name": column.name,
                "type": type_json(column.type),
                "is_primary_key": column.is_primary_key,
                "ordinal_position": column.ordinal,
            }
            for column in columns
        ],
    )


def type_json(column_type: ColumnType) -> dict[str, Any]:
    """Return the REST form of a type."""
    fields: dict[str, Any] = {"code": column_type.code}
    if column_type.element is not None:
        fields["array_element_type"] = type_json(column_type.element)
    if column_type.annotation is not None:
        fields["type_annotation"] = column_type.annotation
    return fields


def json_text(fields: Mapping[str, JsonValue]) -> str:
    """Return a JSON object with its names in alphabetical order, as the source writes it."""
    return json.dumps(fields, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _records_of(history: History, transaction: Transaction, locate: Locate) -> list[DataRecord]:
    """Return a transaction's records: mods that follow each other in a partition and look alike share one."""
    by_token: dict[str, list[tuple[int, RowChange]]] = {}
    for position, change in enumerate(transaction.changes):
        token = locate(change.table, change.key, transaction.commit_micros)
        by_token.setdefault(token, []).append((position, change))
    records: list[tuple[int, DataRecord]] = []
    for token, changes in by_token.items():
        for _, group in groupby(changes, key=lambda c: (c[1].table, c[1].mod_type, c[1].named)):
            members = list(group)
            table = history.table(members[0][1].table)
            record = DataRecord(token, transaction, table, tuple(change for _, change in members), number=0)
            records.append((members[0][0], record))
    records.sort(key=lambda item: item[0])
    last = {record.token: number for number, (_, record) in enumerate(records)}
    return [
        replace(
            record,
            number=number,
            is_last_in_partition=last[record.token] == number,
            records_in_transaction=len(records),
            partitions_in_transaction=len(last),
        )
        for number, (_, record) in enumerate(records)
    ]


def _log_entry(record: DataRecord, change: RowChange, ordinal: int) -> LogEntry:
    transaction = record.transaction
    update_is_whole = transaction.capture in (
        ValueCaptureType.NEW_ROW,
        ValueCaptureType.NEW_ROW_AND_OLD_VALUES,
    )
    return LogEntry(
        table_name=change.table,
        change_kind=ChangeKind(change.mod_type.lower()),
        commit_micros=transaction.commit_micros,
        transaction_id=transaction.transaction_id,
        record_id=record.record_id,
        mod_ordinal=ordinal,
        **mod(record.table, change, transaction.capture),
        is_whole_row=change.mod_type is not ModType.UPDATE or update_is_whole,
    )


def _shown(change: RowChange, capture: ValueCaptureType) -> frozenset[str]:
    """Return the value columns that the record mentions."""
    is_patch = capture in (ValueCaptureType.OLD_AND_NEW_VALUES, ValueCaptureType.NEW_VALUES)
    if change.mod_type is ModType.UPDATE and is_patch:
        return change.named
    return frozenset(change.new or change.old or {})


def _old_values(change: RowChange, capture: ValueCaptureType) -> Row:
    has_old = capture in (ValueCaptureType.OLD_AND_NEW_VALUES, ValueCaptureType.NEW_ROW_AND_OLD_VALUES)
    if not has_old or change.old is None or change.mod_type is ModType.INSERT:
        return {}
    if change.mod_type is ModType.DELETE:
        return change.old
    return {name: value for name, value in change.old.items() if name in change.named}
