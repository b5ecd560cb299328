"""Urgency of a table's compaction, as a ratio: at 1 it is due."""

from collections.abc import Callable
from functools import partial
from itertools import takewhile
from typing import Final

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from cdc_platform.lake.commits.commits import ancestors_of, fact, head, is_compaction, number_of
from cdc_platform.model.base.stored_names import CYCLE
from cdc_platform.pipeline.opened.pipeline import Pipeline

ROLLING_PATIENCE: Final = 4
"""Factor by which system tables wait longer for a compaction: they are read less often than merged tables."""


def fragmentation(pipeline: Pipeline, table: Table) -> float:
    """Return the number of small files of a system table, relative to the number at which it is due."""
    return fragments(pipeline, table) / (pipeline.settings.maintenance.minor_every_cycles * ROLLING_PATIENCE)


def fragments(pipeline: Pipeline, table: Table) -> int:
    """Return the number of cycles that left small files in a table since it was compacted.

    Other cycles, such as one that only deletes, do not count: if there is nothing to compact, an attempt
    leaves no trace, and the same table would stay the most urgent forever.
    """
    return cycles_since(table, partial(_adds_small_files, pipeline.settings.maintenance.small_file_bytes))


def _adds_small_files(small_file_bytes: int, snapshot: Snapshot) -> bool:
    files, added_bytes = (number_of(snapshot, key) or 0 for key in ("added-data-files", "added-files-size"))
    return files > 0 and added_bytes < small_file_bytes * files


def cycles_since(table: Table, counts: Callable[[Snapshot], bool] = lambda _: True) -> int:
    """Return the number of cycles since a table was compacted, among those whose snapshots count."""
    since = takewhile(lambda snapshot: not is_compaction(snapshot), ancestors_of(table, head(table)))
    return len({fact(snapshot, CYCLE) for snapshot in since if counts(snapshot)} - {None})


def deleted_share(pipeline: Pipeline, table: Table) -> float:
    """Return a table's share of deleted rows, relative to the share at which its files are rewritten."""
    snapshot = head(table)
    names = ("total-records", "total-position-deletes")
    total, deletes = ((number_of(snapshot, name) or 0) if snapshot is not None else 0 for name in names)
    limit = total * pipeline.settings.maintenance.major_deleted_fraction
    return deletes / limit if deletes and limit else float(deletes)
