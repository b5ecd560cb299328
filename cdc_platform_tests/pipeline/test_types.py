"""The matrix: every type, in keys and values, under every capture type and mod type, in both dialects."""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.base.timestamps import to_rfc3339
from cdc_platform.model.schema.table_schema import NANOSECONDS, Column, ColumnType, TableSchema
from cdc_platform.model.stream.records import WHOLE_ROW_UPDATES, ModType, ValueCaptureType
from cdc_platform.pipeline.checks.check_result import EVERYTHING
from cdc_platform.pipeline.on_demand.explanation import explain_row
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.sources.spanner.copying.columns import table_arrow_schema, to_arrow
from cdc_platform.sources.spanner.spanner_settings import Dialect
from cdc_platform.sources.spanner.stream.batches import to_batch
from cdc_platform.sources.spanner.stream.window_reader import RECORD_FORMS
from cdc_platform_tests.sources.spanner.fake_server import Plain, change_row, to_value
from cdc_platform_tests.strategies import CAPTURES
from cdc_platform_tests.support.history import JsonValue, RawRow, type_json
from cdc_platform_tests.support.pipelines import (
    CHECKS,
    START,
    feed,
    found_table,
    log_rows,
    make_pipeline,
    quarantined_rows,
    run_steps,
    source_of,
)
from cdc_platform_tests.type_cases import Forms, TypeCase, type_cases
from cdc_platform_tests.yaml_files import change_stream_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

WARNINGS: Final = {check.name for check in CHECKS if check.is_warning}
WITH_OLD: Final = (ValueCaptureType.OLD_AND_NEW_VALUES, ValueCaptureType.NEW_ROW_AND_OLD_VALUES)
NULL: Final[Forms] = (None, None)
FormRow = dict[str, Forms]
CLOCK: Final = itertools.count(1)
"""Microseconds after the start; each is used once."""


def values_table(dialect: Dialect) -> TableSchema:
    """Return a table with a column of every type."""
    key = Column("id", ColumnType("INT64"), is_primary_key=True, ordinal=1)
    columns = [Column(case.name, case.type, False, n) for n, case in enumerate(type_cases(dialect), 2)]
    return TableSchema(f"values_{dialect.value}", (key, *columns))


def keys_table(dialect: Dialect) -> TableSchema:
    """Return a table whose key has a column of every type that a key may have, a timestamp first."""
    cases = sorted(key_cases(dialect), key=lambda case: case.name != "timestamp")
    keys = [Column(case.name, case.type, True, n) for n, case in enumerate(cases, 1)]
    value = Column("v", ColumnType("STRING"), is_primary_key=False, ordinal=len(keys) + 1)
    return TableSchema(f"keys_{dialect.value}", (*keys, value))


def key_cases(dialect: Dialect) -> list[TypeCase]:
    """Return the types that may be part of a key."""
    return [case for case in type_cases(dialect) if case.as_key]


@dataclass
class Writer:
    """Makes raw rows of mods of one dialect, the way through the reader's decoding, and keeps the source."""

    dialect: Dialect
    rows: dict[str, dict[str, FormRow]] = field(default_factory=dict)
    old: dict[str, dict[str, JsonValue]] = field(default_factory=dict)
    """Old values in records of updates and deletes, by transaction."""

    def write(
        self, table: TableSchema, mod: ModType, capture: ValueCaptureType, row: FormRow, *named: str
    ) -> RawRow:
        """Return the record of one change; an update assigns the columns that are named."""
        keys = {column.name: row[column.name] for column in table.key_columns}
        values = {column.name: row.get(column.name, NULL) for column in table.value_columns}
        stored = self.rows.setdefault(table.name, {})
        identity = json.dumps([form for form, _ in keys.values()])
        before = stored.get(identity, {})
        if mod is ModType.DELETE:
            del stored[identity]
            new, old = FormRow(), before
        elif mod is ModType.UPDATE:
            values = {**before, **{name: values[name] for name in named}}
            stored[identity] = {**keys, **values}
            new = values if capture in WHOLE_ROW_UPDATES else {name: values[name] for name in named}
            old = {name: before[name] for name in named}
        else:
            stored[identity], new, old = {**keys, **values}, values, FormRow()
        parts = (keys, *(_without(keys, part) for part in (new, old if capture in WITH_OLD else {})))
        record = self._record(table, mod, capture, [_in_records(part) for part in parts])
        if mod is not ModType.INSERT:
            self.old[str(record["server_transaction_id"])] = _in_records(parts[2])
        return record

    def _record(
        self,
        table: TableSchema,
        mod: ModType,
        capture: ValueCaptureType,
        parts: Sequence[Mapping[str, JsonValue]],
    ) -> RawRow:
        number = next(CLOCK)
        fields: dict[str, Any] = {
            "commit_timestamp": to_rfc3339(START + number),
            "record_sequence": "00000000",
            "server_transaction_id": f"{self.dialect.value}-{number}",
            "is_last_record_in_transaction_in_partition": True,
            "table_name": table.name,
            "column_types": [],
            "mods": [dict(zip(("keys", "new_values", "old_values"), parts, strict=True))],
            "mod_type": mod.value,
            "value_capture_type": capture.value,
            "number_of_records_in_transaction": 1,
            "number_of_partitions_in_transaction": 1,
            "transaction_tag": "",
            "is_system_transaction": False,
        }
        decode = RECORD_FORMS[self.dialect][1]
        value = to_value(self._row_value(table, fields)).SerializeToString()
        return dict(to_batch(0, "", [tuple(row) for row in decode(value)]).to_pylist()[0])

    def _row_value(self, table: TableSchema, fields: dict[str, Any]) -> Plain:
        types = [(column.name, block_type(column.type), column.is_primary_key) for column in table.columns]
        if self.dialect is Dialect.POSTGRESQL:
            named = ("name", "type", "is_primary_key", "ordinal_position")
            described = [dict(zip(named, (*about, n), strict=True)) for n, about in enumerate(types, start=1)]
            return json.dumps({"data_change_record": {**fields, "column_types": described}})
        columns = [
            [name, json.dumps(kind), is_key, str(n)] for n, (name, kind, is_key) in enumerate(types, start=1)
        ]
        mods = [[json.dumps(part) for part in mod.values()] for mod in fields["mods"]]
        texts = {"number_of_records_in_transaction": "1", "number_of_partitions_in_transaction": "1"}
        record = {**fields, **texts, "column_types": columns, "mods": mods}
        return change_row(data=[list(record.values())])

    def batch(self, table: TableSchema) -> pa.RecordBatch:
        """Return the table as a plain read of the source gives it."""
        rows = list(self.rows.get(table.name, {}).values())
        arrays = [
            to_arrow(column.type, [to_value(row[column.name][1]).SerializeToString() for row in rows])
            for column in table.columns
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=table_arrow_schema(table))


def _without(keys: FormRow, row: FormRow) -> FormRow:
    return {name: forms for name, forms in row.items() if name not in keys}


def _in_records(row: FormRow) -> dict[str, JsonValue]:
    return {name: form for name, (form, _) in row.items()}


def block_type(column_type: ColumnType) -> dict[str, Any]:
    """Return a type as in records: they know nothing of the setting for nanoseconds."""
    if column_type.element is not None:
        return {"code": column_type.code, "array_element_type": block_type(column_type.element)}
    if column_type.annotation == NANOSECONDS:
        return {"code": column_type.code}
    return type_json(column_type)


def value_rows(dialect: Dialect) -> Iterator[FormRow]:
    """Yield rows that together have every value of every type, and one of NULLs."""
    cases = type_cases(dialect)
    yield dict.fromkeys((case.name for case in cases), NULL)
    for number in range(max(len(case.values) for case in cases)):
        yield {case.name: case.values[number % len(case.values)] for case in cases}


def key_rows(dialect: Dialect) -> Iterator[FormRow]:
    """Yield keys that differ from the first one in one column each, NULL included."""
    cases = key_cases(dialect)
    first = {case.name: case.values[0] for case in cases}
    yield first
    for case in cases:
        for value in (*case.values[1:], NULL):
            yield {**first, case.name: value}


def first_records(writer: Writer) -> Iterator[RawRow]:
    """Yield inserts of every value and every key, under each capture type."""
    table, serial = values_table(writer.dialect), itertools.count(1)
    for capture in CAPTURES:
        for row in value_rows(writer.dialect):
            whole = {**row, "id": (str(next(serial)),) * 2}
            yield writer.write(table, ModType.INSERT, capture, whole)
    for capture, row in zip(itertools.cycle(CAPTURES), key_rows(writer.dialect), strict=False):
        yield writer.write(keys_table(writer.dialect), ModType.INSERT, capture, {**row, "v": ("new", "new")})


def later_records(writer: Writer) -> Iterator[RawRow]:
    """Yield updates of all columns and of single ones, and deletes, under each capture type."""
    table, rows = values_table(writer.dialect), list(value_rows(writer.dialect))
    named = [case.name for case in type_cases(writer.dialect)]
    serial = itertools.count(1)
    for capture in CAPTURES:
        for number in range(len(rows)):
            whole = {**rows[number - 1], "id": (str(next(serial)),) * 2}
            if number % 3 == 0:
                yield writer.write(table, ModType.DELETE, capture, whole)
            elif number % 3 == 1:
                yield writer.write(table, ModType.UPDATE, capture, whole, *named)
            else:
                for name in named:  # each record a partial update of one column
                    yield writer.write(table, ModType.UPDATE, capture, whole, name)
    for number, (capture, row) in enumerate(
        zip(itertools.cycle(CAPTURES), key_rows(writer.dialect), strict=False)
    ):
        mod = ModType.DELETE if number % 2 else ModType.UPDATE
        yield writer.write(keys_table(writer.dialect), mod, capture, {**row, "v": ("old", "old")}, "v")


def key_of_each_type(dialect: Dialect) -> Iterator[FormRow]:
    """Yield, of the keys that are updated and not deleted, one for each type."""
    key_values = list(key_rows(dialect))[::2]
    for case in key_cases(dialect):
        yield next(row for row in key_values if row[case.name] != key_values[0][case.name])


def assert_explained(pipeline: Pipeline, writer: Writer) -> None:
    """Make sure that rows are found by keys of every type, as people write them."""
    table = keys_table(writer.dialect)
    for row in key_of_each_type(writer.dialect):
        typed = [row[column.name][1] for column in table.key_columns]
        explanation = explain_row(pipeline, table.name, json.dumps(typed)).to_dict()
        assert [change["kind"] for change in explanation["changes"]] == ["insert", "update"], typed
        assert explanation["values"] == {"v": "old"}, typed


def assert_old_values(pipeline: Pipeline, writers: Mapping[Dialect, Writer]) -> None:
    """Compare the previous values in the log with those in the records."""
    expected = {key: values for writer in writers.values() for key, values in writer.old.items()}
    actual = {
        row["transaction_id"]: json.loads(row["old_values"] or "{}")
        for row in log_rows(pipeline)
        if row["change_kind"] != "insert"
    }
    assert expected == actual
    assert any(expected.values())


def test_every_type_arrives_as_the_source_has_it(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """Records become tables that equal plain reads: inserts, whole and partial updates, deletes."""
    writers = {dialect: Writer(dialect) for dialect in Dialect}
    tables = {
        table.name: (table, writer)
        for dialect, writer in writers.items()
        for table in (values_table(dialect), keys_table(dialect))
    }
    pipeline = make_pipeline(session_lake, [table for table, _ in tables.values()])
    columns = [f"{name}.{text}" for name in tables for text in ("nanoseconds", "nanosecondss")]
    settings = replace(change_stream_of(pipeline.settings), nanosecond_columns=tuple(columns))
    pipeline = replace(pipeline, settings=replace(pipeline.settings, source=settings))
    source = source_of(pipeline)
    source.nanosecond_columns = tuple(columns)
    source.rows_at = lambda name, _micros: iter([tables[name][1].batch(tables[name][0])])
    for records in (first_records, later_records):
        rows = [row for writer in writers.values() for row in records(writer)]
        feed(pipeline, START + next(CLOCK), *rows)
        run_steps(pipeline, spark)
        assert [row["reason"] for row in quarantined_rows(pipeline)] == []
    results = {check.name: check.run(pipeline, spark, EVERYTHING) for check in CHECKS}
    assert [
        (name, result.summary)
        for name, result in results.items()
        if not result.passed and name not in WARNINGS
    ] == []
    assert_old_values(pipeline, writers)
    for writer in writers.values():
        assert_explained(pipeline, writer)
    for name, (table, writer) in tables.items():
        expected = writer.batch(table)
        assert expected.num_rows > 10
        names = [column.name for column in table.columns]
        stored = found_table(pipeline, name).scan().to_arrow().select(names)
        assert sorted(map(repr, expected.to_pylist())) == sorted(map(repr, stored.to_pylist()))
