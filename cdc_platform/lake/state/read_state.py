"""The state of reading: the newest entries of a read progress, and the rows that store them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.model.base.schemas import READ_PROGRESS_ROWS
from cdc_platform.model.base.stored_names import READ_PROGRESS
from cdc_platform.model.base.stored_texts import read_stored, understanding
from cdc_platform.model.stream.unread import FORGOTTEN, UNREAD, FailedRead


@dataclass(frozen=True)
class ReadState:
    """Each path with its last read version and the cycle of that read; and the reads that failed since.

    Args:
        versions: versions by path; that of an `unread_path` is a failed read, as text.
        cycles: cycles of the newest reads, by path.
        failed_cycles: cycles of the newest failed reads, by the file's own path.
    """

    versions: Mapping[str, str] = field(default_factory=dict)
    cycles: Mapping[str, int] = field(default_factory=dict)
    failed_cycles: Mapping[str, int] = field(default_factory=dict)

    @understanding(READ_PROGRESS)
    def extended(self, rows: pa.Table) -> "ReadState":
        """Return the state after the reads of later cycles, given as `READ_PROGRESS_ROWS`.

        Raises:
            LakeDamaged: no cycle wrote one of the rows.
        """
        rows = rows.filter(pc.is_valid(rows["version"])).sort_by("cycle")
        is_failure = pc.starts_with(rows["path"], UNREAD)
        paths, versions, cycles = _columns(rows.filter(pc.invert(is_failure)))
        newest = {**self.versions, **dict(zip(paths, versions, strict=True))}
        read_cycles = {**self.cycles, **dict(zip(paths, cycles, strict=True))}
        failed_cycles = dict(self.failed_cycles)
        for key, text, cycle in zip(*_columns(rows.filter(is_failure)), strict=True):
            failure, path = read_stored(FailedRead.from_text, text, READ_PROGRESS, f"row `{key}`"), _file(key)
            earlier = newest.get(key) if failed_cycles.get(path, 0) > read_cycles.get(path, 0) else None
            newest[key] = failure.after(FailedRead.from_text(earlier) if earlier else None).to_text()
            failed_cycles[path] = cycle
        for path in [path for path, cycle in failed_cycles.items() if cycle <= read_cycles.get(path, 0)]:
            del failed_cycles[path], newest[f"{UNREAD}{path}"]
        for path in {path for path in paths if newest[path] == FORGOTTEN}:
            del newest[path], read_cycles[path]
        return ReadState(newest, read_cycles, failed_cycles)

    def rows(self) -> pa.Table:
        """Return the state as `READ_PROGRESS_ROWS`, one for each entry."""
        cycles = [
            self.failed_cycles[_file(path)] if path.startswith(UNREAD) else self.cycles[path]
            for path in self.versions
        ]
        columns = {"cycle": cycles, "path": [*self.versions], "version": [*self.versions.values()]}
        return pa.table(columns, READ_PROGRESS_ROWS)


MAX_FORMER_READS: Final = 500_000
"""Number of the newest former reads that stay: the status page shows when they were."""


def former_reads(rows: pa.Table, newest: pa.Table, after_exclusive: int) -> pa.Table:
    """Return the rows of later cycles that are not among the newest, those of a state, without versions."""
    is_read = pc.fill_null(pc.not_equal(rows["version"], FORGOTTEN), fill_value=True)
    rows = rows.filter(is_read).select(["cycle", "path"])
    rows_since = rows.filter(pc.greater(rows["cycle"], after_exclusive))
    former = rows_since.join(
        newest.select(["cycle", "path"]), ["cycle", "path"], join_type="left anti"
    ).sort_by("cycle")
    former = former.slice(max(0, len(former) - MAX_FORMER_READS))
    return former.append_column("version", pa.nulls(len(former), pa.string())).cast(READ_PROGRESS_ROWS)


def _file(path: str) -> str:
    return path.removeprefix(UNREAD)


def _columns(rows: pa.Table) -> tuple[list[Any], ...]:
    return tuple(rows[name].to_pylist() for name in ("path", "version", "cycle"))
