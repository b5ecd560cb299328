"""Merging net changes into a table, by Spark and without it: what is appended, matched and counted."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest
from pyiceberg.table import Table

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.commits import BRANCH, head
from cdc_platform.lake.commits.maintenance import compact_all_files
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.model.stream.records import ModType
from cdc_platform.pipeline.merging import build
from cdc_platform.pipeline.merging.build import MergeOutcome
from cdc_platform.pipeline.merging.local_merge import LocalMerge, commit_merge
from cdc_platform.pipeline.merging.merge import merge_table
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.ordering.order import order_changes
from cdc_platform.pipeline.publishing.publish import publish_cut
from cdc_platform_tests.example_tables import table
from cdc_platform_tests.support.history import RawRow
from cdc_platform_tests.support.pipelines import (
    START,
    Mod,
    data_change,
    feed,
    found_table,
    make_pipeline,
    merging_by_spark,
    rows_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

SECOND: Final = 1_000_000


class Feeder:
    """Sends each change in a transaction of its own, to all tables alike, and merges them."""

    by_spark = False
    """Whether Spark merges however little it is."""

    def __init__(self, spark: "SparkSession", lake: LakeSettings, *schemas: TableSchema) -> None:
        self.spark = spark
        self.schemas = schemas
        pipeline = make_pipeline(lake, schemas)
        self.pipeline: Pipeline = merging_by_spark(pipeline) if self.by_spark else pipeline
        self.cycle = 0

    def merge(self, *changes: tuple[ModType, Mod]) -> MergeOutcome:
        """Run a cycle of changes of the only table and return what the merge did."""
        (outcome,) = self.merge_all(*changes)
        return outcome

    def merge_all(self, *changes: tuple[ModType, Mod]) -> list[MergeOutcome]:
        """Run a cycle of these changes of each table and return what the merges did."""
        self.cycle += 1
        begun = START + self.cycle * SECOND
        writes = ((schema.name, *change) for schema in self.schemas for change in changes)
        records: list[RawRow] = [
            data_change(name, kind, mod, at_micros=begun + n, transaction=f"{self.cycle}-{n}")
            for n, (name, kind, mod) in enumerate(writes)
        ]
        feed(self.pipeline, begun + SECOND - 1, *records)
        order_changes(self.pipeline, self.spark)
        outcomes = [merge_table(self.pipeline, self.spark, schema.name) for schema in self.schemas]
        publish_cut(self.pipeline)
        return outcomes

    def rows(self) -> list[dict[str, Any]]:
        """Return the published rows."""
        (schema,) = self.schemas
        return rows_of(self.pipeline, schema.name)


@pytest.fixture(autouse=True, params=["here", "by Spark"])
def merger(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Let each of both do all of it, and make sure that it did."""
    monkeypatch.setattr(Feeder, "by_spark", request.param == "by Spark")
    merged: list[LocalMerge] = []

    def note(table: Table, merge: LocalMerge, properties: dict[str, str]) -> None:
        merged.append(merge)
        commit_merge(table, merge, properties)

    monkeypatch.setattr(build, "commit_merge", note)
    yield request.param
    assert bool(merged) == (request.param == "here")


def test_inserted_keys_are_appended_and_existing_ones_merged(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """The counts of the outcome are those of the keys, and keys inserted and deleted need nothing."""
    feeder = Feeder(spark, session_lake, table("t", {"id": "INT64"}, {"a": "INT64", "b": "STRING(9)"}))
    first = feeder.merge(*((ModType.INSERT, ({"id": str(n)}, {"a": "1", "b": "x"})) for n in range(4)))
    assert (first.appended, first.updated, first.deleted, first.fell_back) == (4, 0, 0, False)
    second = feeder.merge(
        (ModType.UPDATE, ({"id": "0"}, {"a": None})),
        (ModType.UPDATE, ({"id": "1"}, {"b": "y"})),
        (ModType.DELETE, ({"id": "2"}, {})),
        (ModType.INSERT, ({"id": "9"}, {"a": "9"})),
        (ModType.INSERT, ({"id": "8"}, {})),
        (ModType.DELETE, ({"id": "8"}, {})),
    )
    assert (second.appended, second.updated, second.deleted, second.fell_back) == (1, 2, 1, False)
    assert feeder.rows() == [
        {"id": 0, "a": None, "b": "x"},
        {"id": 1, "a": 1, "b": "y"},
        {"id": 3, "a": 1, "b": "x"},
        {"id": 9, "a": 9, "b": None},
    ]


def test_a_key_that_looks_like_a_variable_is_text(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """Spark puts nothing in its place, so that the merge finds the row."""
    feeder = Feeder(spark, session_lake, table("t", {"id": "STRING(MAX)"}, {"v": "STRING(9)"}))
    feeder.merge((ModType.INSERT, ({"id": "${spark.app.name}"}, {"v": "one"})))
    outcome = feeder.merge((ModType.UPDATE, ({"id": "${spark.app.name}"}, {"v": "two"})))
    assert (outcome.updated, outcome.fell_back) == (1, False)
    assert feeder.rows() == [{"id": "${spark.app.name}", "v": "two"}]


def test_a_merge_deletes_by_vectors_and_rewrites_nothing(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """Existing files stay as they are: the cost of a cycle follows the change, not the table."""
    feeder = Feeder(spark, session_lake, table("t", {"id": "INT64"}, {"a": "INT64"}))
    feeder.merge(*((ModType.INSERT, ({"id": str(n)}, {"a": "1"})) for n in range(20)))
    feeder.merge((ModType.UPDATE, ({"id": "5"}, {"a": "2"})))
    actual = found_table(feeder.pipeline, "t")
    snapshot = head(actual)
    assert snapshot is not None
    assert snapshot.summary is not None
    summary = snapshot.summary.additional_properties
    assert actual.format_version == 3
    assert summary["added-dvs"] == "1"
    assert summary.get("deleted-data-files", "0") == "0"


def test_a_table_that_lacks_a_key_gets_it_by_the_full_merge(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """A source that updates or deletes what it never inserted is reported, and the rows are right."""
    feeder = Feeder(spark, session_lake, table("t", {"id": "INT64"}, {"a": "INT64"}))
    feeder.merge((ModType.INSERT, ({"id": "1"}, {"a": "1"})))
    outcome = feeder.merge(
        (ModType.UPDATE, ({"id": "1"}, {"a": "2"})),
        (ModType.UPDATE, ({"id": "7"}, {"a": "7"})),
        (ModType.DELETE, ({"id": "8"}, {})),
        (ModType.INSERT, ({"id": "9"}, {"a": "9"})),
    )
    assert outcome.fell_back
    assert feeder.rows() == [{"id": 1, "a": 2}, {"id": 7, "a": 7}, {"id": 9, "a": 9}]
    again = merge_table(feeder.pipeline, spark, "t")
    assert again.snapshot_id is None
    assert not feeder.merge((ModType.UPDATE, ({"id": "7"}, {"a": "8"}))).fell_back


def test_null_keys_are_keys(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """Spanner allows NULL in a primary key, and each such row is one row."""
    feeder = Feeder(spark, session_lake, table("t", {"g": "STRING(9)", "id": "INT64"}, {"a": "INT64"}))
    feeder.merge(
        (ModType.INSERT, ({"g": None, "id": "1"}, {"a": "1"})),
        (ModType.INSERT, ({"g": "x", "id": None}, {"a": "2"})),
        (ModType.INSERT, ({"g": None, "id": None}, {"a": "3"})),
    )
    outcome = feeder.merge(
        (ModType.UPDATE, ({"g": None, "id": "1"}, {"a": "10"})),
        (ModType.DELETE, ({"g": None, "id": None}, {})),
        (ModType.UPDATE, ({"g": "x", "id": None}, {"a": "20"})),
    )
    assert (outcome.updated, outcome.deleted, outcome.fell_back) == (2, 1, False)
    assert feeder.rows() == [{"g": "x", "id": None, "a": 20}, {"g": None, "id": 1, "a": 10}]


def test_a_table_of_keys_only_is_merged_without_fallback(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """A row that is deleted and inserted again counts as found, though nothing in it changes."""
    feeder = Feeder(spark, session_lake, table("t", {"g": "INT64", "id": "INT64"}, {}))
    keys = [{"g": "1", "id": str(n)} for n in range(3)]
    feeder.merge(*((ModType.INSERT, (key, {})) for key in keys))
    outcome = feeder.merge(
        (ModType.DELETE, (keys[0], {})),
        (ModType.INSERT, (keys[0], {})),
        (ModType.DELETE, (keys[1], {})),
    )
    assert (outcome.updated, outcome.deleted, outcome.fell_back) == (1, 1, False)
    assert feeder.rows() == [{"g": 1, "id": 0}, {"g": 1, "id": 2}]


def test_texts_as_keys_are_found_again(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """Bounds of the keys are literals in the statement, and hide no row."""
    escaped = ["it's", "new\nline", "back\\slash"]
    odd = ["", " ", "\x01", "é", "😀"]
    feeder = Feeder(spark, session_lake, table("t", {"id": "STRING(9)"}, {"a": "INT64"}))
    feeder.merge(*((ModType.INSERT, ({"id": key}, {"a": "1"})) for key in escaped + odd))
    # What SQL's texts must escape is a bound of the first update, what bounds must sort of the second.
    for number, keys in enumerate((escaped, odd), start=2):
        outcome = feeder.merge(*((ModType.UPDATE, ({"id": key}, {"a": str(number)})) for key in keys))
        assert (outcome.updated, outcome.fell_back) == (len(keys), False)
    expected = dict.fromkeys(escaped, 2) | dict.fromkeys(odd, 3)
    assert expected == {row["id"]: row["a"] for row in feeder.rows()}


def test_strange_names_are_quoted(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """Tables and columns with quotes, backticks, dots, slashes and reserved words work like others."""
    names = ("it's a `table`", "schema.table", "a/b\\c", 'quoted "name"')
    key_columns, columns = {"key `one`": "INT64", "select": "INT64"}, {"it's": "INT64", "a.b": "STRING(9)"}
    feeder = Feeder(spark, session_lake, *(table(name, key_columns, columns) for name in names))
    key = {"key `one`": "1", "select": "2"}
    feeder.merge_all((ModType.INSERT, (key, {"it's": "3", "a.b": "x"})))
    outcomes = feeder.merge_all((ModType.UPDATE, (key, {"it's": "4"})))
    assert [(outcome.table, outcome.updated, outcome.fell_back) for outcome in outcomes] == [
        (name, 1, False) for name in names
    ]
    for name in names:
        assert rows_of(feeder.pipeline, name) == [{"key `one`": 1, "select": 2, "it's": 4, "a.b": "x"}]


def test_the_branch_ends_where_main_is(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """After a cut both name one snapshot, so that the next merge needs no reset."""
    feeder = Feeder(spark, session_lake, table("t", {"id": "INT64"}, {"a": "INT64"}))
    feeder.merge((ModType.INSERT, ({"id": "1"}, {"a": "1"})))
    actual = found_table(feeder.pipeline, "t")
    assert head(actual) == head(actual, BRANCH)


@pytest.mark.parametrize("merger", ["here"], indirect=True)
def test_a_row_that_is_updated_keeps_its_row_id(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """Anyone who merges and compacts, in turns: readers of Iceberg's row lineage follow a row by it."""
    feeder = Feeder(spark, session_lake, table("t", {"id": "INT64"}, {"a": "INT64"}))

    def row_ids() -> dict[int, int]:
        name = feeder.pipeline.lake.spark_table("t")
        return {row["id"]: row["_row_id"] for row in spark.sql(f"SELECT id, _row_id FROM {name}").collect()}

    feeder.merge(*((ModType.INSERT, ({"id": str(n)}, {"a": "1"})) for n in range(6)))
    first = row_ids()
    pipeline = feeder.pipeline
    for merger in (pipeline, merging_by_spark(pipeline), pipeline, pipeline):
        feeder.pipeline = merger
        feeder.merge(*((ModType.UPDATE, ({"id": str(n)}, {"a": "2"})) for n in (1, 2)))
        assert first == row_ids()
    feeder.pipeline = pipeline
    compact_all_files(spark, f"{pipeline.name}.t")
    feeder.merge((ModType.UPDATE, ({"id": "2"}, {"a": "3"})), (ModType.INSERT, ({"id": "9"}, {"a": "9"})))
    assert first == {id_: row_id for id_, row_id in row_ids().items() if id_ != 9}
    assert row_ids()[9] not in first.values()
