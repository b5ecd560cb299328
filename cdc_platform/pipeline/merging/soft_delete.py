"""Tables in which deleted rows stay."""

import logging
from collections.abc import Collection
from dataclasses import replace
from typing import Final

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import DataFrame, SparkSession

from cdc_platform.errors import CutNotFound, SettingError
from cdc_platform.lake.commits.commits import count_rows
from cdc_platform.lake.state.lost_tables import stored_version
from cdc_platform.model.base.names import quote_spark
from cdc_platform.model.schema.table_options import DELETED, DELETED_AT, keeps_deleted, stored_schema
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.versions.branch import load_table
from cdc_platform.pipeline.versions.lake_frames import read_table
from cdc_platform.spark.tables.soft_delete import compute_soft_net_changes, find_returning

LOGGER: Final = logging.getLogger(__name__)


def net_changes_with_deleted(
    pipeline: Pipeline,
    spark: SparkSession,
    changes: DataFrame,
    schema: TableSchema,
    base: Snapshot | None,
    *,
    is_small: bool,
) -> DataFrame:
    """Return one row per key that changes touch; keys of deleted rows in the table count as existing.

    Args:
        pipeline: the pipeline.
        spark: session that does the work.
        changes: typed changes of this table, with partial updates and origin.
        schema: the table's columns in the lake.
        base: the version of the table before these changes; None if it has no deleted row.
        is_small: whether there are few enough changes to send their keys to all tasks.
    """
    net_changes = compute_soft_net_changes(changes, schema, pipeline.capabilities)
    if base is None or count_rows(base) == 0:
        return net_changes
    before_table = read_table(pipeline, spark, schema.name, base.snapshot_id)
    return find_returning(net_changes, before_table, schema, is_small=is_small)


def lacks_deleted(table: Table, version: Snapshot | None, schema: TableSchema) -> bool:
    """Return whether a table's version is older than its setting `soft_delete`, so it must be rebuilt.

    Raises:
        SettingError: the setting `soft_delete` was switched off.
    """
    if not keeps_deleted(schema) and DELETED in table.schema().column_names:
        raise SettingError(
            f"table_options.{schema.name}.soft_delete",
            "was true, and the table holds deleted rows: set it again, or materialise the table with "
            "the run setting `rebuild: true`, which removes them",
        )
    return misses_deleted(table, version, schema)


def misses_deleted(table: Table, version: Snapshot | None, schema: TableSchema) -> bool:
    """Return whether a version of a table is older than its setting `soft_delete`."""
    return keeps_deleted(schema) and version is not None and DELETED not in _columns_at(table, version)


def require_same_option(table: Table, version: Snapshot, schema: TableSchema, at_cut: int) -> None:
    """Ensure that the version of a table at a cut has deleted rows if its setting `soft_delete` keeps them.

    Raises:
        CutNotFound: the setting was another one.
    """
    advice = "choose another cut, or none to start from the log's beginning"
    if misses_deleted(table, version, schema):
        raise CutNotFound(
            f"Table `{schema.name}` has no deleted rows at cut {at_cut}, which is older than its setting "
            f"`soft_delete`; {advice}."
        )
    if not keeps_deleted(schema) and DELETED in _columns_at(table, version):
        raise CutNotFound(
            f"Table `{schema.name}` has deleted rows at cut {at_cut}, when its setting `soft_delete` was "
            f"true; {advice}."
        )


def _columns_at(table: Table, version: Snapshot) -> Collection[str]:
    """Return the names of a version's columns, or those of the table if the version does not state them."""
    schema_id = version.schema_id if version.schema_id is not None else table.metadata.current_schema_id
    return table.schemas()[schema_id].column_names


def stored_at(pipeline: Pipeline, table: TableSchema, snapshot_id: int) -> TableSchema:
    """Return the columns of a table at a snapshot, including those of soft deletes if it had them."""
    stored_table = load_table(pipeline, table.name)
    version = stored_version(stored_table, snapshot_id)
    is_soft = version is not None and DELETED in _columns_at(stored_table, version)
    return stored_schema(table, replace(pipeline.options(table.name), soft_delete=is_soft))


def report_rebuild(schema: TableSchema) -> None:
    """Log the reason why a cycle reads the table's whole log."""
    LOGGER.warning(
        "Table %s is rebuilt from the change log, because its setting soft_delete is new.", schema.name
    )


def drop_markers(pipeline: Pipeline, spark: SparkSession, schema: TableSchema) -> bool:
    """Drop the columns of soft deletes from a table that was rebuilt without deleted rows, if it has them."""
    columns = load_table(pipeline, schema.name).schema().column_names
    markers = [quote_spark(name) for name in (DELETED, DELETED_AT) if name in columns]
    if not markers or keeps_deleted(schema):
        return False
    spark.sql(f"ALTER TABLE {pipeline.lake.spark_table(schema.name)} DROP COLUMNS ({', '.join(markers)})")
    return True
