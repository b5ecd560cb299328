"""Deletions that older events of their rows meet."""

from typing import TYPE_CHECKING

import pytest

from cdc_platform.model.schema.table_schema import DECIMAL, Column, ColumnType, TableSchema
from cdc_platform.model.stream.records import ChangeKind
from cdc_platform.spark.tables.deletion_markers import with_deletion_markers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

_SCHEMA = "keys string, ordering_key string, commit_timestamp timestamp, change_kind string"


@pytest.mark.parametrize("is_small", [True, False])
@pytest.mark.parametrize(
    ("wider", "spelling"),
    [
        (ColumnType("STRING"), '{"id":"1"}'),
        (ColumnType("FLOAT64"), '{"id":1.0}'),
        (ColumnType(DECIMAL, annotation="21,2"), '{"id":"1.00"}'),
    ],
    ids=lambda parameter: parameter.code if isinstance(parameter, ColumnType) else "",
)
def test_a_deletion_is_found_by_the_key_and_not_by_its_text(
    spark: "SparkSession", wider: ColumnType, spelling: str, is_small: bool
) -> None:
    """Files write a key by their own types, which may be narrower; of another key nothing is found."""
    table = TableSchema("t", (Column("id", wider, is_primary_key=True, ordinal=1),))
    log = spark.createDataFrame([(spelling, "2", None, ChangeKind.UPDATE.value)], _SCHEMA)
    rows = [
        (keys, order, None, "") for keys, order in (('{"id":1}', "3"), (spelling, "1"), ('{"id":12}', "9"))
    ]
    buried = spark.createDataFrame(rows, _SCHEMA).drop("change_kind")
    changes = with_deletion_markers(log, buried, table, is_small=is_small)
    actual = changes.orderBy("ordering_key").collect()
    assert [(row["ordering_key"], row["change_kind"]) for row in actual] == [
        ("1", ChangeKind.DELETE.value),
        ("2", ChangeKind.UPDATE.value),
        ("3", ChangeKind.DELETE.value),
    ]


def test_one_task_finds_few_deletions(spark: "SparkSession", capsys: pytest.CaptureFixture[str]) -> None:
    """With few markers, the query has a single stage, even if changes and markers have several partitions."""
    table = TableSchema("t", (Column("id", ColumnType("INT64"), is_primary_key=True, ordinal=1),))
    moment = "timestamp '2026-01-01' AS commit_timestamp"
    markers = spark.range(0, 4, numPartitions=2).selectExpr(
        "concat('{\"id\":', id, '}') AS keys", "string(id) AS ordering_key", moment
    )
    log = markers.selectExpr("*", "'update' AS change_kind")
    for is_small in (True, False):
        with_deletion_markers(log, markers, table, is_small=is_small).explain()
        assert is_small == ("Exchange" not in capsys.readouterr().out)
