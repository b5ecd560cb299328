"""Writes through Spark that are there once, however often they are repeated."""

from collections.abc import Mapping

from pyiceberg.table import Table
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses

from cdc_platform.errors import CommitConflict
from cdc_platform.lake.commits import TICK, head

CONFLICT_SIGNS = ("ValidationException", "Found conflicting files", "CommitFailedException")


def overwrite_tick(
    frame: DataFrame, target: str, planned_on: Table, tick: int, properties: Mapping[str, str]
) -> None:
    """Commit one tick's rows, in place of what the same tick has written before.

    Args:
        frame: the rows; their column `tick` is `tick`.
        target: Spark's name of the table.
        planned_on: the version of the table that the tick was planned on.
        tick: number of the tick.
        properties: further entries of the snapshot's summary.

    Raises:
        CommitConflict: another run has committed the tick since it was planned.
    """
    writer = frame.writeTo(target).option("isolation-level", "serializable")
    base = head(planned_on)
    if base is not None:
        writer = writer.option("validate-from-snapshot-id", str(base.snapshot_id))
    for key, value in {TICK: str(tick), **properties}.items():
        writer = writer.option(f"snapshot-property.{key}", value)
    try:
        writer.overwrite(F.col("tick") == F.lit(tick))
    except Exception as error:
        if any(sign in str(error) for sign in CONFLICT_SIGNS):
            raise CommitConflict(
                f"Tick {tick} of {target} was committed by another run, so this one changed nothing; "
                "the next tick goes on from it."
            ) from error
        raise
