"""Plan of the windows that a cycle reads of partitions that are behind."""

from dataclasses import replace

from cdc_platform.model.base.timestamps import MICROS_PER_S
from cdc_platform.model.stream.lineage import Lineage, live
from cdc_platform.model.stream.read_windows import ReadRequest, ReadWindow


def plan_windows(lineage: Lineage, request: ReadRequest) -> tuple[ReadWindow, ...]:
    """Return one window for each live partition that is behind the common end.

    The common end lies just before the source's clock: no later commit has a timestamp at or before it. It
    lies at most `max_window_s` after the position of the partition that is furthest behind.
    """
    candidates = live(lineage)
    if not candidates:
        return ()
    ends = [request.clock_micros - 1]
    if request.max_window_s is not None:
        ends.append(candidates[0].position_micros + max(1, round(request.max_window_s * MICROS_PER_S)))
    if request.end_limit_micros is not None:
        ends.append(request.end_limit_micros)
    end = min(ends)
    return tuple(
        ReadWindow(partition.token, partition.position_micros, end)
        for partition in candidates
        if partition.position_micros < end and (request.keys is None or partition.key in request.keys)
    )


def plan_arrivals(lineage: Lineage, request: ReadRequest) -> tuple[ReadWindow, ...]:
    """Return the window of a source whose events belong to the cycle that reads them.

    Its clock is this machine's, which may be behind the newest position if it was set back.
    """
    newest_micros = max((partition.position_micros for partition in lineage.partitions.values()), default=0)
    clock_micros = max(request.clock_micros, newest_micros + 2)
    return plan_windows(lineage, replace(request, clock_micros=clock_micros, max_window_s=None))
