"""Columns of the plan of an initial copy."""

from cdc_platform.lake.catalog.lake import COPIED
from cdc_platform.lake.state.copies import CopyPlan
from cdc_platform.model.base.stored_texts import read_stored
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.pipeline.opened.source import StreamSource


def planned_columns(source: StreamSource, plan: CopyPlan) -> TableSchema:
    """Return the table of a plan with its columns at the plan's position.

    Raises:
        LakeDamaged: no planner wrote the plan's columns.
    """
    return read_stored(source.copied_table, plan.columns, COPIED, f"plan {plan.number} of `{plan.table}`")
