"""Derivation of the partition lineage from the reports of committed cycles."""

from cdc_platform.lake.commits.commits import read_mark
from cdc_platform.lake.state.control import load_lineage, read_control, save_lineage
from cdc_platform.model.base.stored_names import RAW
from cdc_platform.model.base.timestamps import MICROS_PER_S
from cdc_platform.model.stream.lineage import Lineage, advance, begin, prune
from cdc_platform.pipeline.opened.pipeline import Pipeline

KEEP_FINISHED_S = 7 * 24 * 3600
"""Seconds for which finished partitions stay in the lineage; the raw records keep them longer."""


def trace_lineage(pipeline: Pipeline) -> Lineage:
    """Return the lineage up to the newest committed cycle, and store it.

    It needs no Spark, and it needs the source only the very first time.
    """
    saved_lineage = load_lineage(pipeline.lake)
    lineage = saved_lineage if saved_lineage is not None else begin(pipeline.source.start_micros())
    newest_cycle = read_mark(pipeline.lake.system_table(RAW)).cycle
    for cycle in range(lineage.cycle + 1, newest_cycle + 1):
        control = read_control(pipeline.lake, cycle)
        lineage = advance(lineage, cycle, control.windows, control.children)
    if lineage is saved_lineage:
        return lineage
    newest_micros = max((partition.position_micros for partition in lineage.partitions.values()), default=0)
    return save_lineage(pipeline.lake, prune(lineage, newest_micros - KEEP_FINISHED_S * MICROS_PER_S))
