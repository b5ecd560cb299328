"""Batches of changes whose values are completed in one go: the reference of completion by key chains."""

from collections.abc import Sequence

from cdc_platform.model.rows.resolution import RowChange, RowTracker, StoredRows


def resolve(
    changes: Sequence[RowChange], stored: StoredRows, log: Sequence[RowChange] = ()
) -> list[RowChange]:
    """Return changes with the values that the source did not send.

    Args:
        changes: of one batch, in the order of the source, without duplicates.
        stored: rows before the batch.
        log: all changes before the batch, from which rows are followed whose former key no row has.
    """
    tracker = RowTracker(stored)
    resolved = [tracker.take(change) for change in changes]
    is_lost = any(change.previous_key and change.unavailable for change in resolved)
    if not log or not is_lost:
        return resolved
    tracker = RowTracker({})
    return [tracker.take(change) for change in (*log, *changes)][len(log) :]
