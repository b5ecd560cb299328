"""Columns of a table that is being copied, replaced for a newer plan of its copy."""

from itertools import count

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AssertCurrentSchemaId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    SetCurrentSchemaUpdate,
    TableRequirement,
    TableUpdate,
)

from cdc_platform.lake.commits.branches import assert_head
from cdc_platform.lake.commits.commits import BRANCH, MAIN, conflicts_as, head_id
from cdc_platform.lake.commits.new_tables import iceberg_schema
from cdc_platform.lake.state.copies import COPY_BRANCH
from cdc_platform.model.schema.table_schema import TableSchema


def replace_columns(table: Table, schema: TableSchema) -> None:
    """Replace all columns of a table, and remove its branch `copy`, in one commit.

    A table is never dropped for this: no catalog drops only the version of a table that a run has examined.

    Args:
        table: the version that no cut names. Each run that publishes it moves a branch first.
        schema: the new columns.

    Raises:
        CommitConflict: another run has moved a branch, or changed the columns; nothing was changed.
    """
    metadata = table.metadata
    requirements: tuple[TableRequirement, ...] = (
        AssertTableUUID(uuid=metadata.table_uuid),
        AssertCurrentSchemaId.model_validate({"current-schema-id": metadata.current_schema_id}),
        *(assert_head(branch, head_id(table, branch)) for branch in (MAIN, BRANCH, COPY_BRANCH)),
    )
    updates: list[TableUpdate] = [
        AddSchemaUpdate.model_validate({"schema": _new_schema(table, schema)}),
        SetCurrentSchemaUpdate(),
    ]
    if COPY_BRANCH in metadata.refs:
        updates.append(RemoveSnapshotRefUpdate.model_validate({"ref-name": COPY_BRANCH}))
    with conflicts_as(
        f"Another run has changed table `{schema.name}` since this one planned its copy; the next cycle "
        "continues from there."
    ):
        table.catalog.commit_table(table, requirements, tuple(updates))


def _new_schema(table: Table, schema: TableSchema) -> Schema:
    """Return columns of which none has the id of a former one: files of former plans have those."""
    number = max(former.schema_id for former in table.metadata.schemas) + 1
    return iceberg_schema(schema, number, count(table.metadata.last_column_id + 1))
