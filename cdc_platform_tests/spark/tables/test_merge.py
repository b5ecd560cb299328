"""Merging net changes into a table, by Spark and without it: what is appended, matched and counted."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pytest
from pyiceberg.table.snapshots import Snapshot

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.commits import BRANCH, fact, head
from cdc_platform.lake.commits.maintenance import compact_all_files
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.model.stream.records import ModType
from cdc_platform.pipeline.merging.build import MergeOutcome
from cdc_platform.pipeline.merging.merge import merge_tables
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.ordering.order import order_changes
from cdc_platform.pipeline.publishing.publication import publish_cut
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


Change = tuple[ModType, Mod]
Counts = tuple[int, int, int, bool]
"""Rows that a merge has appended, updated and deleted, and whether it took the full merge."""
LOCAL: Final = "cdc_platform"
INSERT, UPDATE, DELETE = ModType.INSERT, ModType.UPDATE, ModType.DELETE


@dataclass(frozen=True)
class Case:
    """A table, its changes in each cycle, what the merges of these count, and the rows at the end."""

    schema: TableSchema
    cycles: tuple[tuple[Change, ...], ...]
    counts: tuple[Counts, ...]
    rows: list[dict[str, Any]]


def inserts(rows: int) -> tuple[Change, ...]:
    """Return inserts of rows whose keys are numbers."""
    return tuple((INSERT, ({"id": str(n)}, {"a": "1"})) for n in range(rows))


def updates(keys: Sequence[str], value: str) -> tuple[Change, ...]:
    """Return updates of rows."""
    return tuple((UPDATE, ({"id": key}, {"a": value})) for key in keys)


VARIABLE: Final = "${spark.app.name}"
"""A text in whose place Spark's SQL may put another one."""
ESCAPED: Final = ["it's", "new\nline", "back\\slash"]
"""What SQL's texts must escape: bounds of an update."""
ODD: Final = ["", " ", "\x01", "é", "😀"]
"""What bounds must sort."""
ODD_NAME: Final = 'it\'s a `table`, a/b\\c, quoted "name"'
ODD_KEY: Final = {"key `one`": VARIABLE, "select": "2"}
GROUPED: Final = [{"g": "1", "id": str(n)} for n in range(3)]


CASES: Final = {
    "keys inserted and deleted need nothing": Case(
        table("counted", {"id": "INT64"}, {"a": "INT64", "b": "STRING(9)"}),
        (
            tuple((INSERT, ({"id": str(n)}, {"a": "1", "b": "x"})) for n in range(4)),
            (
                (UPDATE, ({"id": "0"}, {"a": None})),
                (UPDATE, ({"id": "1"}, {"b": "y"})),
                (DELETE, ({"id": "2"}, {})),
                (INSERT, ({"id": "9"}, {"a": "9"})),
                (INSERT, ({"id": "8"}, {})),
                (DELETE, ({"id": "8"}, {})),
            ),
        ),
        ((4, 0, 0, False), (1, 2, 1, False)),
        [
            {"id": 0, "a": None, "b": "x"},
            {"id": 1, "a": 1, "b": "y"},
            {"id": 3, "a": 1, "b": "x"},
            {"id": 9, "a": 9, "b": None},
        ],
    ),
    "columns that all, some and none of the changes name": Case(
        table("partly", {"id": "INT64"}, {"a": "INT64", "b": "STRING(9)", "c": "INT64"}),
        (
            tuple((INSERT, ({"id": str(n)}, {"a": "1", "b": "x", "c": "1"})) for n in range(3)),
            (
                (UPDATE, ({"id": "0"}, {"a": "2", "b": None})),
                (UPDATE, ({"id": "1"}, {"a": None})),
                (UPDATE, ({"id": "1"}, {"a": "3"})),
            ),
        ),
        ((3, 0, 0, False), (0, 2, 0, False)),
        [
            {"id": 0, "a": 2, "b": None, "c": 1},
            {"id": 1, "a": 3, "b": "x", "c": 1},
            {"id": 2, "a": 1, "b": "x", "c": 1},
        ],
    ),
    "a table that lacks a key gets it by the full merge": Case(
        table("lacking", {"id": "INT64"}, {"a": "INT64"}),
        (
            ((INSERT, ({"id": "1"}, {"a": "1"})),),
            (*updates(["1", "7"], "7"), (DELETE, ({"id": "8"}, {})), (INSERT, ({"id": "9"}, {"a": "9"}))),
            updates(["7"], "8"),
        ),
        ((1, 0, 0, False), (1, 2, 1, True), (0, 1, 0, False)),
        [{"id": 1, "a": 7}, {"id": 7, "a": 8}, {"id": 9, "a": 9}],
    ),
    "null keys are keys": Case(
        table("nulls", {"g": "STRING(9)", "id": "INT64"}, {"a": "INT64"}),
        (
            (
                (INSERT, ({"g": None, "id": "1"}, {"a": "1"})),
                (INSERT, ({"g": "x", "id": None}, {"a": "2"})),
                (INSERT, ({"g": None, "id": None}, {"a": "3"})),
            ),
            (
                (UPDATE, ({"g": None, "id": "1"}, {"a": "10"})),
                (DELETE, ({"g": None, "id": None}, {})),
                (UPDATE, ({"g": "x", "id": None}, {"a": "20"})),
            ),
        ),
        ((3, 0, 0, False), (0, 2, 1, False)),
        [{"g": "x", "id": None, "a": 20}, {"g": None, "id": 1, "a": 10}],
    ),
    "a row of keys only that comes back counts as updated": Case(
        table("keys", {"g": "INT64", "id": "INT64"}, {}),
        (
            tuple((INSERT, (key, {})) for key in GROUPED),
            ((DELETE, (GROUPED[0], {})), (INSERT, (GROUPED[0], {})), (DELETE, (GROUPED[1], {}))),
        ),
        ((3, 0, 0, False), (0, 1, 1, False)),
        [{"g": 1, "id": 0}, {"g": 1, "id": 2}],
    ),
    "texts as keys are found again": Case(
        table("schema.texts", {"id": "STRING(9)"}, {"a": "INT64"}),
        (
            tuple((INSERT, ({"id": key}, {"a": "1"})) for key in ESCAPED + ODD),
            updates(ESCAPED, "2"),
            updates(ODD, "3"),
        ),
        ((8, 0, 0, False), (0, 3, 0, False), (0, 5, 0, False)),
        [{"id": key, "a": 2 if key in ESCAPED else 3} for key in ESCAPED + ODD],
    ),
    "odd names are quoted, and a key that looks like a variable is text": Case(
        table(
            ODD_NAME, {"key `one`": "STRING(MAX)", "select": "INT64"}, {"it's": "INT64", "a.b": "STRING(9)"}
        ),
        (((INSERT, (ODD_KEY, {"it's": "3", "a.b": "x"})),), ((UPDATE, (ODD_KEY, {"it's": "4"})),)),
        ((1, 0, 0, False), (0, 1, 0, False)),
        [{"key `one`": VARIABLE, "select": 2, "it's": 4, "a.b": "x"}],
    ),
}


@dataclass
class Feeder:
    """Sends each change in a separate transaction, and merges the changes of a cycle."""

    spark: "SparkSession"
    pipeline: Pipeline
    outcomes: dict[str, list[MergeOutcome]] = field(default_factory=dict)
    cycle: int = 0

    def merge(self, changes: Mapping[str, Sequence[Change]]) -> None:
        """Run a cycle of changes of some tables, and note what the merges of these did."""
        self.cycle += 1
        begun = START + self.cycle * SECOND
        writes = ((name, *change) for name, listed in changes.items() for change in listed)
        records: list[RawRow] = [
            data_change(name, kind, mod, at_micros=begun + n, transaction=f"{self.cycle}-{n}")
            for n, (name, kind, mod) in enumerate(writes)
        ]
        feed(self.pipeline, begun + SECOND - 1, *records)
        order_changes(self.pipeline, self.spark)
        for outcome in merge_tables(self.pipeline, self.spark, self.pipeline.tables):
            if outcome.table in changes:
                self.outcomes.setdefault(outcome.table, []).append(outcome)
        publish_cut(self.pipeline)


@pytest.fixture(scope="module", params=["here", "by Spark"])
def merged(
    request: pytest.FixtureRequest, spark: "SparkSession", session_lake: LakeSettings
) -> Iterator[Feeder]:
    """Every table after all of its cycles, merged by this process or by Spark."""
    pipeline = make_pipeline(session_lake, [case.schema for case in CASES.values()])
    feeder = Feeder(spark, merging_by_spark(pipeline) if request.param == "by Spark" else pipeline)
    for number in range(max(len(case.cycles) for case in CASES.values())):
        of_cycle = (case for case in CASES.values() if number < len(case.cycles))
        feeder.merge({case.schema.name: case.cycles[number] for case in of_cycle})
    yield feeder
    by_process = {fact(snapshot_of(feeder, case), "engine-name") == LOCAL for case in CASES.values()}
    assert by_process == {request.param == "here"}


def snapshot_of(feeder: Feeder, case: Case) -> Snapshot:
    """Return the published snapshot of a table."""
    snapshot = head(found_table(feeder.pipeline, case.schema.name))
    assert snapshot is not None
    return snapshot


@pytest.mark.parametrize("name", CASES)
def test_merges_count_keys_and_leave_the_rows_of_the_source(merged: Feeder, name: str) -> None:
    """Keys match for any types and names; missing rows are reported, and added."""
    case = CASES[name]
    outcomes = merged.outcomes[case.schema.name]
    assert list(case.counts) == [
        (merge.appended, merge.updated, merge.deleted, merge.fell_back) for merge in outcomes
    ]
    assert sorted(case.rows, key=repr) == rows_of(merged.pipeline, case.schema.name)


def test_a_merge_that_is_done_is_not_done_again(merged: Feeder) -> None:
    """Another merge of the same log makes no snapshot, also where the full merge has made the newest."""
    outcomes = merge_tables(merged.pipeline, merged.spark, merged.pipeline.tables)
    assert {None} == {outcome.snapshot_id for outcome in outcomes}


def test_a_merge_deletes_by_vectors_and_rewrites_nothing(merged: Feeder) -> None:
    """Existing files stay as they are: the cost of a cycle follows the change, not the table."""
    actual = found_table(merged.pipeline, "counted")
    summaries = [snapshot.summary for snapshot in actual.metadata.snapshots]
    facts = [summary.additional_properties for summary in summaries if summary is not None]
    assert actual.format_version == 3
    assert [summary["added-dvs"] for summary in facts if "added-dvs" in summary] == ["1"]
    assert {"0"} == {summary.get("deleted-data-files", "0") for summary in facts}


def test_the_branch_ends_where_main_is(merged: Feeder) -> None:
    """After a cut both name one snapshot, so that the next merge needs no reset."""
    for case in CASES.values():
        actual = found_table(merged.pipeline, case.schema.name)
        assert head(actual) == head(actual, BRANCH), case.schema.name


def test_a_row_that_is_updated_keeps_its_row_id(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """Anyone who merges and compacts, in turns: readers of Iceberg's row lineage follow a row by it."""
    pipeline = make_pipeline(session_lake, (table("t", {"id": "INT64"}, {"a": "INT64"}),))
    feeder = Feeder(spark, pipeline)

    def row_ids() -> dict[int, int]:
        name = pipeline.lake.spark_table("t")
        return {row["id"]: row["_row_id"] for row in spark.sql(f"SELECT id, _row_id FROM {name}").collect()}

    feeder.merge({"t": inserts(6)})
    first = row_ids()
    for merger in (pipeline, merging_by_spark(pipeline), pipeline):
        feeder.pipeline = merger
        feeder.merge({"t": updates(["1", "2"], "2")})
        assert first == row_ids()
    compact_all_files(spark, found_table(pipeline, "t"))
    feeder.merge({"t": [*updates(["2"], "3"), (INSERT, ({"id": "9"}, {"a": "9"}))]})
    after = row_ids()
    assert after.pop(9) not in first.values()
    assert first == after
