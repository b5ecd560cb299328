"""Primary keys that change their type in place, and tables that are recreated with another one."""

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.schema.schema_reads import SchemaRead
from cdc_platform.model.schema.table_options import TableOptions
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.model.stream.records import ModType, ValueCaptureType
from cdc_platform.pipeline.checks.check_result import EVERYTHING
from cdc_platform.pipeline.checks.table_checks import check_histories, check_tables_equal_log
from cdc_platform.pipeline.on_demand.rebuild import rebuild_table
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform_tests.example_tables import table
from cdc_platform_tests.support.history import RawRow
from cdc_platform_tests.support.pipelines import (
    START,
    data_change,
    feed,
    make_pipeline,
    quarantined_rows,
    rows_of,
    run_steps,
    source_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

SECOND: Final = 1_000_000
KEY: Final = "no base64!"
KEY_TEXTS: Final = {"STRING": KEY, "BYTES": base64.b64encode(KEY.encode()).decode()}
V: Final = {"v": "STRING(MAX)"}


@dataclass(frozen=True)
class Retyped:
    """A table whose key changes its type in place behind its second second."""

    before: TableSchema
    after: TableSchema

    def records(self) -> Iterator[list[RawRow]]:
        """Yield the records of each cycle: of one row, under the key as it is written then."""
        old, new = (KEY_TEXTS[schema.key_columns[0].type.code] for schema in (self.before, self.after))
        yield [write(self.before, ModType.INSERT, old, "one", 1)]
        yield [write(self.after, ModType.UPDATE, new, "two", 2)]
        yield [write(self.after, ModType.UPDATE, new, "three", 4)]

    @property
    def rows(self) -> list[dict[str, object]]:
        """The row at the end."""
        key = KEY if self.after.key_columns[0].type.code == "STRING" else KEY.encode()
        return [{"id": key, "v": "three"}]


@dataclass(frozen=True)
class Recreated:
    """A table that is dropped and recreated with another key between two cycles.

    All of a row's key is alike: `key` before, and each character of `keys` after.
    """

    before: TableSchema
    after: TableSchema
    key: str
    keys: str

    def records(self) -> Iterator[list[RawRow]]:
        """Yield the records of each cycle."""
        yield [write(self.before, ModType.INSERT, self.key, "old", 1)]
        older = write(self.before, ModType.UPDATE, self.key, "older", 1.5)
        yield [older, *(write(self.after, ModType.INSERT, key, f"new {key}", 2) for key in self.keys)]
        yield [write(self.after, ModType.UPDATE, self.keys[0], "newer", 4)]

    @property
    def rows(self) -> list[dict[str, object]]:
        """The rows of the new table at the end."""
        values = ["newer", *(f"new {key}" for key in self.keys[1:])]
        return [
            {column.name: typed(column.type.code, key) for column in self.after.columns} | {"v": value}
            for key, value in zip(self.keys, values, strict=True)
        ]


def retyped(name: str, before: str, after: str) -> Retyped:
    """Return a table whose key has one type and then another one."""
    return Retyped(*(table(name, {"id": f"{code}(MAX)"}, V) for code in (before, after)))


def wider(name: str) -> TableSchema:
    """Return a table with a key of two columns."""
    return table(name, {"id": "INT64", "part": "INT64"}, V)


CASES: Final = {
    case.after.name: case
    for case in (
        retyped("bytes", "STRING", "BYTES"),
        retyped("string", "BYTES", "STRING"),
        Recreated(
            table("another_column", {"id": "INT64"}, V),
            table("another_column", {"code": "STRING(MAX)"}, V),
            "1",
            "xyz",
        ),
        Recreated(
            table("another_type", {"id": "INT64"}, V),
            table("another_type", {"id": "STRING(MAX)"}, V),
            "1",
            "xyz",
        ),
        Recreated(table("column_more", {"id": "INT64"}, V), wider("column_more"), "1", "123"),
        Recreated(wider("column_less"), table("column_less", {"id": "INT64"}, V), "1", "123"),
        Recreated(
            wider("former_key"), table("former_key", {"part": "INT64"}, {**V, "id": "INT64"}), "1", "123"
        ),
    )
}


def write(schema: TableSchema, mod_type: ModType, key: str, value: str, second: float) -> RawRow:
    """Return the record of a row that is written, by the table as it is then; all of its key is alike."""
    keys = {column.name: key for column in schema.key_columns}
    values = {column.name: key for column in schema.value_columns} | {"v": value}
    at, capture = START + int(second * SECOND), ValueCaptureType.NEW_ROW
    return data_change(
        schema.name, mod_type, (keys, values), at_micros=at, transaction=f"{schema.name} {value}",
        capture=capture, schema=schema,
    )  # fmt: skip


def typed(code: str, text: str) -> object:
    """Return the text of a value as the lake has it."""
    return int(text) if code == "INT64" else text


def stored(pipeline: Pipeline, case: Retyped | Recreated) -> list[dict[str, object]]:
    """Return the rows of a table, in the columns that it has at the source."""
    names = [column.name for column in case.after.columns]
    rows = [{name: row[name] for name in names} for row in rows_of(pipeline, case.after.name)]
    return sorted(rows, key=lambda row: str(row[names[0]]))


@pytest.fixture(scope="module")
def pipeline(spark: "SparkSession", session_lake: LakeSettings) -> Pipeline:
    """All tables, some with histories, after three cycles."""
    options = dict.fromkeys(("bytes", "another_column"), TableOptions(history=True))
    made = make_pipeline(session_lake, (), options=options)
    before, after = (tuple(getattr(case, when) for case in CASES.values()) for when in ("before", "after"))
    source_of(made).schemas = before
    source_of(made).schema_at = lambda micros: SchemaRead(
        micros, before if micros < START + 2 * SECOND else after, {}, {}
    )
    cycles = zip(*(case.records() for case in CASES.values()), strict=True)
    for second, records in zip((1, 3, 4), cycles, strict=True):
        feed(made, START + second * SECOND, *(row for of_table in records for row in of_table))
        run_steps(made, spark)
    return made


def test_nothing_is_set_aside_and_the_log_proves_all(pipeline: Pipeline, spark: "SparkSession") -> None:
    """Tables and histories equal the result of the whole log."""
    assert quarantined_rows(pipeline) == []
    for check in (check_tables_equal_log, check_histories):
        result = check(pipeline, spark, EVERYTHING)
        assert result.passed, result.summary


@pytest.mark.parametrize("name", CASES)
def test_rows_are_found_by_the_key_of_the_source(
    pipeline: Pipeline, spark: "SparkSession", name: str
) -> None:
    """A key that changes its type names the same row; a table with another key has the new rows only.

    A rebuild of the table gives the same.
    """
    case = CASES[name]
    key_columns = pipeline.table(name).key_columns
    assert [column.name for column in case.after.key_columns] == [column.name for column in key_columns]
    assert case.rows == stored(pipeline, case)
    rebuild_table(pipeline, spark, name)
    assert case.rows == stored(pipeline, case)
