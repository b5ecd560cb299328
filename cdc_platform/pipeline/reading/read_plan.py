"""The plan of a cycle's reads."""

from functools import cache

from cdc_platform.errors import OffsetsLost
from cdc_platform.model.stream.lineage import Lineage
from cdc_platform.model.stream.read_windows import ReadPlan, ReadRequest
from cdc_platform.pipeline.opened.source import ReadProgress, Source


def plan_reads(
    source: Source, lineage: Lineage, request: ReadRequest, read_progress: ReadProgress
) -> ReadPlan:
    """Return the read windows of a cycle.

    Raises:
        OffsetsLost: what is to be read next is gone, and no other process has read it.
        SourceError: the source cannot be asked.
    """
    progress = cache(read_progress)
    try:
        return source.plan(lineage, request, progress)
    except OffsetsLost:
        # Another process may have read it, and a retention deleted it, since this one loaded its progress.
        if read_progress() == progress():
            raise
        return plan_reads(source, lineage, request, read_progress)
