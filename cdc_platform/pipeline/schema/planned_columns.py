"""The columns that a plan of an initial copy names."""

from cdc_platform.lake.catalog.lake import COPIED
from cdc_platform.lake.state.copies import CopyPlan
from cdc_platform.model.base.stored_texts import read_stored
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.pipeline.opened.source import CopySource


def planned_columns(source: CopySource, plan: CopyPlan) -> TableSchema:
    """Return the table of a plan as the source had it at the plan's position.

    Raises:
        LakeDamaged: the plan's columns are none that a planner writes.
    """
    return read_stored(source.copied_table, plan.columns, COPIED, f"plan {plan.number} of `{plan.table}`")
