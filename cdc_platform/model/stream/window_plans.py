"""Plan of the windows that a cycle reads of partitions that are behind."""

from collections.abc import Collection

from cdc_platform.model.stream.lineage import _MICROS_PER_S, Lineage, live
from cdc_platform.model.stream.read_windows import ReadRequest, ReadWindow


def plan_windows(
    lineage: Lineage,
    clock_micros: int,
    max_window_s: float | None = None,
    keys: Collection[str] | None = None,
    end_limit_micros: int | None = None,
) -> tuple[ReadWindow, ...]:
    """Return one window for each live partition that is behind the common end.

    The common end lies just before the source's clock: no later commit has a timestamp at or before it. It
    lies at most `max_window_s` after the position of the partition that is furthest behind.

    Args:
        lineage: The partitions and their positions.
        clock_micros: The source's own clock.
        max_window_s: maximum seconds of source time that a cycle covers.
        keys: Partition keys to read; all live partitions when None.
        end_limit_micros: Latest time to read.
    """
    candidates = live(lineage)
    if not candidates:
        return ()
    ends = [clock_micros - 1]
    if max_window_s is not None:
        ends.append(candidates[0].position_micros + max(1, round(max_window_s * _MICROS_PER_S)))
    if end_limit_micros is not None:
        ends.append(end_limit_micros)
    end = min(ends)
    return tuple(
        ReadWindow(partition.token, partition.position_micros, end)
        for partition in candidates
        if partition.position_micros < end and (keys is None or partition.key in keys)
    )


def plan_arrivals(lineage: Lineage, request: ReadRequest) -> tuple[ReadWindow, ...]:
    """Return the window of a source whose events belong to the cycle that reads them.

    Its clock is this machine's, which may be behind the newest position if it was set back.
    """
    newest_micros = max((partition.position_micros for partition in lineage.partitions.values()), default=0)
    clock_micros = max(request.clock_micros, newest_micros + 2)
    return plan_windows(lineage, clock_micros, None, request.keys, request.end_limit_micros)


def plan_requested(lineage: Lineage, request: ReadRequest) -> tuple[ReadWindow, ...]:
    """Return the windows of `plan_windows` for a request."""
    return plan_windows(
        lineage, request.clock_micros, request.max_window_s, request.keys, request.end_limit_micros
    )
