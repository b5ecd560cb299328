"""Tables that had rows before the change stream's beginning, which no copy brings."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from cdc_platform.errors import RetentionExpired, SourceNotFound
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.schema.evolution import SchemaHistory
from cdc_platform.model.schema.schema_reads import PastSchemaReads
from cdc_platform.model.stream.records import ValueCaptureType
from cdc_platform.pipeline.checks.check_result import EVERYTHING
from cdc_platform.pipeline.checks.source_checks import check_schema, check_source
from cdc_platform.pipeline.checks.table_checks import check_tables_equal_log
from cdc_platform.pipeline.schema.schema_evolution import find_exclusions, with_older_rows
from cdc_platform_tests.pipeline.evolving import STEP, EvolvingSource
from cdc_platform_tests.support.pipelines import START, feed, make_pipeline, rows_of, run_steps, source_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


def old_source() -> EvolvingSource:
    """Return a table whose rows were written before the stream is read."""
    source = EvolvingSource(columns={"a": "STRING", "b": "STRING"})
    for key in ("1", "2"):
        source.write(key, 1, ValueCaptureType.NEW_ROW, ("a", "b"))
    source.end_step()
    source.records.clear()
    return source


def rows_at(source: EvolvingSource, micros: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the source at a moment."""
    yield from pa.Table.from_pylist(source.typed_rows_at(micros)).to_batches()


@pytest.mark.parametrize("capture", [ValueCaptureType.NEW_ROW, ValueCaptureType.OLD_AND_NEW_VALUES])
def test_rows_of_before_are_reported_as_missing(
    spark: "SparkSession", session_lake: LakeSettings, capture: ValueCaptureType
) -> None:
    """Changes of such columns are in the lake; every check reports that older values are missing."""
    source = old_source()
    pipeline = make_pipeline(session_lake, ())
    fake = source_of(pipeline)
    fake.schema_at, fake.rows_at = source.read_schema, lambda _table, micros: rows_at(source, micros)
    assert "`notes` was not copied" in " ".join(find_exclusions(pipeline))
    source.write("1", 2, capture, ("a",))
    source.end_step()
    feed(pipeline, START + STEP, *(row for _, row in source.records))
    run_steps(pipeline, spark)
    is_whole = capture is ValueCaptureType.NEW_ROW
    assert rows_of(pipeline, "notes") == [{"id": 1, "a": "v2", "b": "v1" if is_whole else None}]
    assert check_tables_equal_log(pipeline, spark, EVERYTHING).passed
    result = check_source(pipeline, spark, EVERYTHING)
    assert result.passed
    counts = f"1 rows missing, 0 too many, {0 if is_whole else 1} different"
    assert f"`notes` differs as expected, since `notes` was not copied: {counts}" in result.summary
    assert "`notes` was not copied" in check_schema(pipeline, spark, EVERYTHING).summary


@pytest.mark.parametrize(
    ("expected", "answer"),
    [
        (False, None),
        (False, SourceNotFound("it does not watch the table")),
        (True, RetentionExpired("it no longer keeps that version")),
    ],
    ids=["empty", "not watched", "forgotten"],
)
def test_only_what_may_have_had_rows_lacks_a_copy(
    session_lake: LakeSettings, expected: bool, answer: Exception | None
) -> None:
    """An empty or missing table lacks nothing; for a table that is not recorded it is unknown."""
    source = old_source()
    pipeline = make_pipeline(session_lake, ())

    def answers(_table: str, _micros: int) -> Iterator[pa.RecordBatch]:
        if answer is not None:
            raise answer
        return iter(())

    source_of(pipeline).rows_at = answers
    schema_read = with_older_rows(
        pipeline, SchemaHistory(), source.read_schema(START), PastSchemaReads(source.read_schema)
    )
    assert ({"notes"} if expected else set()) == schema_read.uncopied


def test_tables_that_are_copied_lack_no_rows(session_lake: LakeSettings) -> None:
    """Where initial copies are made, the source is not asked."""
    source = old_source()
    pipeline = make_pipeline(session_lake, (), copy_chunk_rows=1)
    look = source.read_schema(START)
    assert look == with_older_rows(pipeline, SchemaHistory(), look, PastSchemaReads(pipeline.read_schema))
