"""Columns that are replaced before a table is in a cut."""

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest

from cdc_platform.errors import CommitConflict
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.branches import move_branch
from cdc_platform.lake.commits.commits import BRANCH, head, head_id
from cdc_platform.lake.state.copies import COPY_BRANCH, CopyPlan, columns_to_text, load_copy_progress
from cdc_platform.lake.state.copy_columns import replace_columns
from cdc_platform.model.schema.table_schema import PRIMARY_KEY, spark_type
from cdc_platform_tests.example_tables import table as table_of
from cdc_platform_tests.support.pipelines import START, found_table, make_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_platform.pipeline.opened.pipeline import Pipeline

TYPES: Final = {
    **{name.lower(): name for name in ("BOOL", "FLOAT32", "FLOAT64", "NUMERIC", "DATE", "TIMESTAMP", "JSON")},
    "string": "STRING(MAX)",
    "bytes": "BYTES(MAX)",
    "numbers": "ARRAY<INT64>",
    "texts": "ARRAY<STRING(MAX)>",
    "exact": "ARRAY<NUMERIC>",
}
COPIED: Final = table_of("copied", {"id": "INT64"}, TYPES)


def half_copied(lake: LakeSettings) -> "Pipeline":
    """Return a pipeline with a table of other columns, which has a row on the branch `copy`."""
    pipeline = make_pipeline(lake, (COPIED,))
    rows = pa.table({"id": ["1"], "string": [1], "gone": [True]})
    made = pipeline.lake.catalog.create_table(f"{pipeline.name}.copied", rows.schema)
    made.append(rows.schema.empty_table())
    made.append(rows, branch=COPY_BRANCH)
    return pipeline


@pytest.mark.integration
def test_spark_reads_and_writes_the_new_columns(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """Columns that keep their names begin without values, and the row of the former plan is gone."""
    pipeline = half_copied(session_lake)
    replace_columns(found_table(pipeline, "copied"), COPIED)
    copied = found_table(pipeline, "copied")
    base_id = head_id(copied)
    assert base_id is not None
    move_branch(copied, COPY_BRANCH, base_id)
    target = pipeline.lake.spark_table("copied", COPY_BRANCH)
    fields = spark.table(target).schema.fields
    assert {field.name: field.dataType.simpleString() for field in fields} == {
        column.name: spark_type(column.type) for column in COPIED.columns
    }
    spark.sql(f"INSERT INTO {target} (id, numbers, string) VALUES (7, array(1, 2), 'a')")
    copied = found_table(pipeline, "copied")
    (row,) = copied.scan(snapshot_id=head_id(copied, COPY_BRANCH)).to_arrow().to_pylist()
    assert (row["id"], row["numbers"], row["string"], row["bool"]) == (7, [1, 2], "a", None)
    assert copied.scan().to_arrow().num_rows == 0
    assert [field.name for field in copied.schema().fields if field.doc == PRIMARY_KEY] == ["id"]


@pytest.mark.parametrize("branch", ["main", BRANCH, COPY_BRANCH])
def test_a_branch_that_another_run_moves_is_a_conflict(session_lake: LakeSettings, branch: str) -> None:
    """Every run that publishes the table moves one of them."""
    pipeline = half_copied(session_lake)
    table = found_table(pipeline, "copied")
    moved = found_table(pipeline, "copied")
    if branch == BRANCH:
        newest = head(moved)
        assert newest is not None
        move_branch(moved, branch, newest.snapshot_id)
    else:
        moved.append(moved.schema().as_arrow().empty_table(), branch=branch)
    with pytest.raises(CommitConflict, match="has changed table `copied`"):
        replace_columns(table, COPIED)
    assert "gone" in found_table(pipeline, "copied").schema().column_names


def test_a_copy_without_rows_is_complete_at_once(session_lake: LakeSettings) -> None:
    """The source has deleted all rows since the former plan, of which nothing counts any more."""
    pipeline = half_copied(session_lake)
    replace_columns(found_table(pipeline, "copied"), COPIED)
    plan = CopyPlan("copied", 2, START, START, columns_to_text(COPIED), ())
    progress = load_copy_progress(found_table(pipeline, "copied"), plan)
    assert (progress.is_complete, progress.is_mixed, progress.head) == (True, False, None)
