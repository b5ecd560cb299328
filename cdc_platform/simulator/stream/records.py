"""Data change records as rows of a change stream query, in both dialects."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Final, NamedTuple, TypeAlias

from cdc_platform.model.base.timestamps import to_rfc3339
from cdc_platform.model.stream.records import ValueCaptureType
from cdc_platform.simulator.history.schema import Schema, SimColumn, SimTable
from cdc_platform.simulator.history.transactions import Change, Mod, Row, Transaction
from cdc_platform.simulator.wire.simulator_settings import Dialect
from cdc_platform.simulator.wire.values import json_text, json_writer, type_fields
from cdc_platform.simulator.wire.wire import FALSE, NULL, TRUE, list_value, string_value

HIGH: Final = 0x963D1AF435FB3E79
"""High part of record sequences with two parts."""
_OFFSETS: Final = ("Z", "+00:00")
_BOOLS: Final = ("false", "true")
_MOD_NAMES: Final = tuple(mod.name for mod in Mod)
_PARTIAL_CAPTURES: Final = (ValueCaptureType.OLD_AND_NEW_VALUES, ValueCaptureType.NEW_VALUES)
_WITH_OLD: Final = (ValueCaptureType.OLD_AND_NEW_VALUES, ValueCaptureType.NEW_ROW_AND_OLD_VALUES)
_EMPTY: Final = list_value(())

JsonWriter: TypeAlias = Callable[[Row], str]


class DataRecord(NamedTuple):
    """Mods of one table, type and transaction in one partition."""

    transaction: Transaction
    number: int
    table: SimTable
    capture: ValueCaptureType
    changes: tuple[Change, ...]
    is_last_in_partition: bool
    records: int
    partitions: int

    @property
    def sequence(self) -> str:
        """The record sequence, increasing within the transaction, with gaps."""
        number = 3 * self.number + 1
        if self.transaction.is_high_low:
            return f"{HIGH + number // 2:016x}-{number % 2:08x}"
        return f"{number:08d}"

    @property
    def shown_slots(self) -> tuple[int, ...]:
        """The slots of the value columns whose types and new values the record has."""
        change = self.changes[0]
        if change.mod == Mod.UPDATE and self.capture in _PARTIAL_CAPTURES:
            return tuple(slot for slot in self.table.watched_slots if slot in change.slots)
        return self.table.watched_slots

    @property
    def old_slots(self) -> tuple[int, ...] | None:
        """The slots of the value columns whose old values the record has; None if it has none at all."""
        change, table = self.changes[0], self.table
        if self.capture not in _WITH_OLD or change.mod == Mod.INSERT:
            return None
        if change.mod == Mod.DELETE:
            return table.watched_slots
        return tuple(slot for slot in table.watched_slots if slot in change.slots)

    @property
    def shown_columns(self) -> list[tuple[int, SimColumn]]:
        """The columns in the record, each with its ordinal position."""
        return _columns_in(self.table, self.shown_slots)


def data_records(transaction: Transaction, schema: Schema) -> list[DataRecord]:
    """Return the records of a transaction, in the order of their sequences; none if no change is watched.

    Consecutive changes of the same form in one partition share a record.
    """
    by_partition: dict[int, list[tuple[int, Change]]] = {}
    for position, change in enumerate(watched_changes(transaction, schema)):
        by_partition.setdefault(change.partition, []).append((position, change))
    groups: list[tuple[int, tuple[Change, ...]]] = []
    for changes in by_partition.values():
        for _, group in groupby(changes, key=lambda item: (item[1].table, item[1].mod, item[1].slots)):
            members = list(group)
            groups.append((members[0][0], tuple(change for _, change in members)))
    groups.sort()
    last = {changes[0].partition: number for number, (_, changes) in enumerate(groups)}
    return [
        DataRecord(
            transaction,
            number,
            schema.by_number[changes[0].table],
            schema.capture,
            changes,
            last[changes[0].partition] == number,
            len(groups),
            len(last),
        )
        for number, (_, changes) in enumerate(groups)
    ]


def watched_changes(transaction: Transaction, schema: Schema) -> Iterator[Change]:
    """Yield the changes of a transaction that the change stream records.

    This excludes updates of columns that it does not watch.
    """
    tables = schema.by_number
    for change in transaction.changes:
        table = tables[change.table]
        if not table.is_watched:
            continue
        if change.mod != Mod.UPDATE or not set(change.slots).isdisjoint(table.watched_slots):
            yield change


def record_writer(dialect: Dialect) -> Callable[[DataRecord], bytes]:
    """Return a function that writes a record as the value of a row."""
    return _googlesql_record if dialect is Dialect.GOOGLESQL else _postgresql_record


def heartbeat_row(dialect: Dialect, micros: int) -> bytes:
    """Return a heartbeat record as the value of a row."""
    if dialect is Dialect.GOOGLESQL:
        return _kinds(_EMPTY, list_value((list_value((string_value(to_rfc3339(micros)),)),)), _EMPTY)
    return string_value(f'{{"heartbeat_record":{{"timestamp":"{_offset_timestamp(micros)}"}}}}')


def child_row(
    dialect: Dialect, start_micros: int, number: int, children: Sequence[tuple[str, Sequence[str | None]]]
) -> bytes:
    """Return a child partitions record, of tokens with their parents, as the value of a row."""
    sequence = f"{number + 1:08d}"
    if dialect is Dialect.GOOGLESQL:
        child_list = list_value(
            list_value((string_value(token), list_value(map(_text, parents)))) for token, parents in children
        )
        record = list_value((string_value(to_rfc3339(start_micros)), string_value(sequence), child_list))
        return _kinds(_EMPTY, _EMPTY, list_value((record,)))
    partitions = ",".join(
        f'{{"parent_partition_tokens":{json_text(list(parents))},"token":{json_text(token)}}}'
        for token, parents in children
    )
    return string_value(
        f'{{"child_partitions_record":{{"child_partitions":[{partitions}],"record_sequence":"{sequence}",'
        f'"start_timestamp":"{_offset_timestamp(start_micros)}"}}}}'
    )


def _text(text: str | None) -> bytes:
    return NULL if text is None else string_value(text)


def _kinds(data: bytes, heartbeats: bytes, children: bytes) -> bytes:
    return list_value((list_value((data, heartbeats, children)),))


def _googlesql_record(record: DataRecord) -> bytes:
    transaction, table = record.transaction, record.table
    mods = list_value(list_value(map(string_value, mod)) for mod in mod_texts(record))
    fields = (
        _commit_timestamp(transaction.commit_micros),
        string_value(record.sequence),
        string_value(transaction.id),
        TRUE if record.is_last_in_partition else FALSE,
        _short_text(table.name),
        _column_types(table, record.shown_slots),
        mods,
        _short_text(_MOD_NAMES[record.changes[0].mod]),
        _short_text(record.capture.value),
        _number_text(record.records),
        _number_text(record.partitions),
        _short_text(transaction.tag),
        TRUE if transaction.is_system else FALSE,
    )
    return _kinds(list_value((list_value(fields),)), _EMPTY, _EMPTY)


def _postgresql_record(record: DataRecord) -> bytes:
    transaction = record.transaction
    mods = ",".join(
        f'{{"keys":{keys},"new_values":{new},"old_values":{old}}}' for keys, new, old in mod_texts(record)
    )
    return string_value(
        f'{{"data_change_record":{{"column_types":{_column_types_json(record.table, record.shown_slots)},'
        f'"commit_timestamp":"{_offset_timestamp(transaction.commit_micros)}",'
        f'"is_last_record_in_transaction_in_partition":{_BOOLS[record.is_last_in_partition]},'
        f'"is_system_transaction":{_BOOLS[transaction.is_system]},'
        f'"mod_type":"{_MOD_NAMES[record.changes[0].mod]}","mods":[{mods}],'
        f'"number_of_partitions_in_transaction":{record.partitions},'
        f'"number_of_records_in_transaction":{record.records},"record_sequence":"{record.sequence}",'
        f'"server_transaction_id":"{transaction.id}","table_name":{json_text(record.table.name)},'
        f'"transaction_tag":{json_text(transaction.tag)},"value_capture_type":"{record.capture.value}"}}}}'
    )


def mod_texts(record: DataRecord) -> Iterable[tuple[str, str, str]]:
    """Yield keys, new values and old values of each mod of a record, as JSON texts."""
    write_keys = _object_writer(record.table.key_columns)
    write_new = _slots_writer(record.table, record.shown_slots)
    write_old = _old_writer(record)
    for change in record.changes:
        row = change.new or change.old or ()
        new = "{}" if change.new is None else write_new(change.new)
        old = "{}" if write_old is None or change.old is None else write_old(change.old)
        yield write_keys(row), new, old


def _old_writer(record: DataRecord) -> JsonWriter | None:
    slots = record.old_slots
    return None if slots is None else _slots_writer(record.table, slots)


def _slots_writer(table: SimTable, slots: tuple[int, ...]) -> JsonWriter:
    return _object_writer(tuple(column for column in table.value_columns if column.slot in slots))


@lru_cache(maxsize=1024)
def _object_writer(columns: tuple[SimColumn, ...]) -> JsonWriter:
    """Return a function that writes these columns of a row as a JSON object, sorted by name."""
    parts = [
        (f"{json_text(column.name)}:", column.slot, json_writer(column.type))
        for column in sorted(columns, key=lambda column: column.name)
    ]
    longest = max((column.slot for column in columns), default=-1)

    def write(row: Row) -> str:
        cells = row if len(row) > longest else (*row, *(None,) * (longest + 1 - len(row)))
        return "{" + ",".join([name + write_cell(cells[slot]) for name, slot, write_cell in parts]) + "}"

    return write


@lru_cache(maxsize=256)
def _column_types(table: SimTable, slots: tuple[int, ...]) -> bytes:
    return list_value(
        list_value(
            (
                string_value(column.name),
                string_value(_type_text(column)),
                TRUE if column.is_primary_key else FALSE,
                string_value(str(ordinal)),
            )
        )
        for ordinal, column in _columns_in(table, slots)
    )


@lru_cache(maxsize=256)
def _column_types_json(table: SimTable, slots: tuple[int, ...]) -> str:
    columns = (
        f'{{"is_primary_key":{_BOOLS[column.is_primary_key]},"name":{json_text(column.name)},'
        f'"ordinal_position":{ordinal},"type":{_type_text(column)}}}'
        for ordinal, column in _columns_in(table, slots)
    )
    return f"[{','.join(columns)}]"


def _columns_in(table: SimTable, slots: tuple[int, ...]) -> list[tuple[int, SimColumn]]:
    return [
        (ordinal, column)
        for ordinal, column in enumerate(table.columns, start=1)
        if column.is_primary_key or column.slot in slots
    ]


def _type_text(column: SimColumn) -> str:
    return json.dumps(type_fields(column.type), separators=(",", ":"))


def _offset_timestamp(micros: int) -> str:
    """Return the timestamp in the form of PostgreSQL's JSON: some with `Z`, some with an offset."""
    return to_rfc3339(micros)[:-1] + _OFFSETS[micros % 2]


@lru_cache(maxsize=64)
def _commit_timestamp(micros: int) -> bytes:
    return string_value(to_rfc3339(micros))


@lru_cache(maxsize=1024)
def _short_text(text: str) -> bytes:
    return string_value(text)


@lru_cache(maxsize=1024)
def _number_text(number: int) -> bytes:
    return string_value(str(number))
