"""Columns of tables and their lineage, for the UI."""

from collections.abc import Mapping, Sequence
from typing import Final

import dagster as dg
import pyarrow as pa

from cdc_platform.lake.catalog.column_comments import COLUMN_COMMENTS
from cdc_platform.model.schema.table_schema import TableSchema, spark_type
from cdc_platform.visible import visible_text


def own_schema(table: str, schema: pa.Schema) -> dg.TableSchema:
    """Return the columns of a system table, with their descriptions."""
    comments = COLUMN_COMMENTS[table]
    return dg.TableSchema(
        columns=[dg.TableColumn(field.name, _type_name(field.type), comments[field.name]) for field in schema]
    )


def _type_name(field_type: pa.DataType) -> str:
    """Return a type of Spark; the fields of a struct would push the descriptions out of the window."""
    from pyspark.sql.pandas.types import from_arrow_type

    if pa.types.is_list(field_type):
        return f"array<{_type_name(field_type.value_type)}>"
    return "struct" if pa.types.is_struct(field_type) else from_arrow_type(field_type).simpleString()


def table_schema(schema: TableSchema, comments: Mapping[str, str]) -> dg.TableSchema:
    """Return the columns of a materialised table with their comments; key columns are marked."""
    keys = {column.name for column in schema.key_columns}
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                column.name,
                spark_type(column.type),
                visible_text(comments.get(column.name, "")) or None,
                constraints=dg.TableColumnConstraints(
                    nullable=column.name not in keys, other=["primary key"] if column.name in keys else []
                ),
            )
            for column in schema.columns
        ]
    )


def log_lineage(raw: dg.AssetKey) -> dg.TableColumnLineage:
    """Return the lineage of the columns of the log."""
    return dg.TableColumnLineage(
        {
            column: [dg.TableColumnDep(raw, raw_column) for raw_column in raw_columns]
            for column, raw_columns in LOG_LINEAGE.items()
        }
    )


LOG_LINEAGE: Final[Mapping[str, Sequence[str]]] = {
    "table_name": ["table_name"],
    "change_kind": ["mod_type"],
    "ordering_key": ["record_order"],
    "commit_timestamp": ["record_timestamp"],
    "transaction_id": ["server_transaction_id"],
    "record_id": ["record_sequence"],
    "records_in_transaction": ["number_of_records_in_transaction"],
    "partition_token": ["partition_token"],
    "keys": ["mods"],
    "new_values": ["mods"],
    "old_values": ["mods"],
    "is_whole_row": ["value_capture_type", "mod_type"],
    "is_system_transaction": ["is_system_transaction"],
    "transaction_tag": ["transaction_tag"],
}
