"""New tables of the lake for source tables and histories; they need no Spark."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from typing import Any, Final

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import TableAlreadyExistsError
from pyiceberg.partitioning import (
    PARTITION_FIELD_ID_START,
    UNPARTITIONED_PARTITION_SPEC,
    PartitionField,
    PartitionSpec,
)
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform

from cdc_platform.lake.catalog.lake_settings import KEPT_BY_TIME
from cdc_platform.model.schema.table_schema import PRIMARY_KEY, TableSchema, spark_type

MERGE_ON_READ: Final = {
    "write.merge.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.delete.mode": "merge-on-read",
    "write.merge.distribution-mode": "none",
    "write.update.distribution-mode": "none",
    "write.delete.distribution-mode": "none",
    "write.distribution-mode": "none",
    # Iceberg retries after a conflict with compaction; the branch detects a conflict with another cycle.
    "write.merge.isolation-level": "snapshot",
    "write.parquet.compression-codec": "zstd",
    **KEPT_BY_TIME,
}
"""Properties of tables into which cycles merge changes."""

_ICEBERG_TYPES: Final = {"bigint": "long", "timestamp": "timestamptz", "timestamp_ntz": "timestamp"}
"""Iceberg's names of Spark's types, where they differ."""
_LIST: Final = "array<"


def create_table(
    catalog: Catalog, identifier: tuple[str, str], schema: TableSchema, format_version: int, *partition: str
) -> None:
    """Create a table into which cycles merge changes, unless another run has created it.

    Args:
        catalog: the catalog.
        identifier: namespace and name.
        schema: the columns.
        format_version: Iceberg's format version.
        partition: columns by whose values the table is partitioned.
    """
    columns = iceberg_schema(schema, 0, count(1))
    fields = [
        PartitionField(columns.find_field(name).field_id, number, IdentityTransform(), name)
        for number, name in enumerate(partition, PARTITION_FIELD_ID_START)
    ]
    spec = PartitionSpec(*fields) if fields else UNPARTITIONED_PARTITION_SPEC
    properties = {
        **_with_prefix(catalog, "table-default."),
        **MERGE_ON_READ,
        "format-version": str(format_version),
        **_with_prefix(catalog, "table-override."),
    }
    with suppress(TableAlreadyExistsError):
        catalog.create_table(identifier, columns, partition_spec=spec, properties=properties)


def _with_prefix(catalog: Catalog, prefix: str) -> dict[str, str]:
    """Return the properties that the catalog sets for new tables; Spark applies them, pyiceberg does not."""
    return {
        name.removeprefix(prefix): text
        for name, text in catalog.properties.items()
        if name.startswith(prefix)
    }


def iceberg_schema(schema: TableSchema, schema_id: int, ids: Iterator[int]) -> Schema:
    """Return columns as a schema of Iceberg, all of them optional.

    Args:
        schema: the columns.
        schema_id: number of the schema in its table.
        ids: ids of columns and elements, which the table has for no other ones.
    """
    fields = [
        {
            "id": next(ids),
            "name": column.name,
            "type": _iceberg_type(spark_type(column.type), ids),
            "required": False,
            **({"doc": PRIMARY_KEY} if column.is_primary_key else {}),
        }
        for column in schema.columns
    ]
    return Schema.model_validate({"type": "struct", "schema-id": schema_id, "fields": fields})


def _iceberg_type(spark_name: str, ids: Iterator[int]) -> Any:
    """Return a type of Spark in the JSON form of Iceberg's schemas."""
    if not spark_name.startswith(_LIST):
        return _ICEBERG_TYPES.get(spark_name, spark_name)
    element_id, element = next(ids), spark_name.removeprefix(_LIST).removesuffix(">")
    return {
        "type": "list",
        "element-id": element_id,
        "element": _iceberg_type(element, ids),
        "element-required": False,
    }
