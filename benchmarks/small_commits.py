"""Many small commits into a large table: seconds and bytes of each, with maintenance in the average.

The platform's merge, which needs no Spark for so few changes, runs with the maintenance that the platform
itself would do after as many cycles. A hand-written window and MERGE INTO runs next to it for the first
commits, on a separate table without maintenance.
"""

import argparse
import statistics
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.inputs.changes import History, write_base
from benchmarks.measure.harness import Report, arguments, timed
from benchmarks.measure.tables import IcebergTable, open_lake, peer_table, platform_table
from benchmarks.merge import Changes, local_merge, window_merge
from cdc_platform.lake.commits.maintenance import compact_small_files, expire_snapshots
from cdc_platform.lake.commits.snapshots import find_expendable
from cdc_platform.model.base.timestamps import clock_micros
from cdc_platform.pipeline.opened.pipeline_settings import MaintenanceSettings


@dataclass
class Series:
    """What each commit took, and what maintenance after it took on top."""

    commits_s: list[float] = field(default_factory=list)
    maintenance_s: list[float] = field(default_factory=list)
    added_bytes: list[int] = field(default_factory=list)

    def seconds(self, begin: int, end: int) -> float:
        """Return the mean seconds of a range of commits, maintenance included."""
        both = zip(self.commits_s[begin:end], self.maintenance_s[begin:end], strict=True)
        return statistics.mean(commit + maintenance for commit, maintenance in both)


def added_bytes(table: IcebergTable, after_exclusive: int) -> int:
    """Return the bytes that the snapshots since one have added."""
    metadata = table.catalog.load_table(table.path).metadata
    snapshot = metadata.snapshot_by_id(table.current_snapshot_id())
    total = 0
    while snapshot is not None and snapshot.snapshot_id != after_exclusive:
        summary = snapshot.summary.additional_properties if snapshot.summary else {}
        total += int(summary.get("added-files-size", 0))
        parent = snapshot.parent_snapshot_id
        snapshot = metadata.snapshot_by_id(parent) if parent is not None else None
    return total


def maintain(table: IcebergTable, commit: int, settings: MaintenanceSettings) -> None:
    """Do what the platform does after so many cycles."""
    if commit % settings.minor_every_cycles == 0:
        compact_small_files(table.spark, table.catalog.load_table(table.path), settings.small_file_bytes)
    if commit % settings.expire_every_cycles == 0:
        actual = table.catalog.load_table(table.path)
        old = find_expendable(actual, clock_micros(), settings.keep_snapshots)
        expire_snapshots(table.spark, table.path, old)


def run_commits(
    options: argparse.Namespace, ours: IcebergTable, peer: IcebergTable, scratch: Path
) -> tuple[Series, Series]:
    """Bring the same changes into both tables, commit by commit."""
    settings = MaintenanceSettings()
    history = History(options.rows, options.seed, pool=options.rows // 2 or 1, hot=options.hot)
    platform, by_hand = Series(), Series()
    for commit in range(1, options.commits + 1):
        file = scratch / "changes.parquet"
        pq.write_table(history.take(options.changes), file)
        changes = Changes(file, history.checksum)
        before = ours.current_snapshot_id()
        platform.commits_s.append(timed(partial(local_merge, ours, changes)))
        platform.added_bytes.append(added_bytes(ours, before))
        platform.maintenance_s.append(timed(partial(maintain, ours, commit, settings)))
        if commit <= options.peer_commits:
            before = peer.current_snapshot_id()
            by_hand.commits_s.append(timed(partial(window_merge, peer, changes)))
            by_hand.added_bytes.append(added_bytes(peer, before))
            by_hand.maintenance_s.append(0.0)
        if commit == options.peer_commits:
            peer.verify(changes.expected)
        if commit % 10 == 0:
            print(f"  {commit}/{options.commits}: {platform.seconds(commit - 10, commit):.2f} s", flush=True)
    ours.verify(history.checksum)
    return platform, by_hand


def report_series(report: Report, name: str, series: Series) -> None:
    """Report a series without its first commits, in which the session warms up."""
    warm = min(3, len(series.commits_s) - 1)
    count = len(series.commits_s)
    quarter = max(1, (count - warm) // 4)
    first, last = series.seconds(warm, warm + quarter), series.seconds(count - quarter, count)
    report.note(f"{name}: mean", series.seconds(warm, count), "s/commit", commits=count - warm)
    report.note(f"{name}: commit alone, median", statistics.median(series.commits_s[warm:]), "s/commit")
    report.note(f"{name}: maintenance", statistics.mean(series.maintenance_s[warm:]), "s/commit")
    report.note(f"{name}: written", statistics.mean(series.added_bytes[warm:]) / 1e6, "MB/commit")
    report.note(f"{name}: first quarter", first, "s/commit")
    report.note(f"{name}: last quarter", last, "s/commit")
    report.note(f"{name}: last / first quarter", last / first, "x")


def main() -> None:
    """Run the benchmark."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the table")
    parser.add_argument("--changes", type=int, default=50_000, help="changes of a commit")
    parser.add_argument("--commits", type=int, default=200, help="commits of the platform")
    parser.add_argument("--peer-commits", type=int, default=20, help="commits of the hand-written merge")
    parser.add_argument("--hot", action="store_true", help="change only the newest 5 %% of the rows")
    options = parser.parse_args()
    report = Report("small_commits", options)
    scratch = options.work / f"small-commits-{options.rows}"
    scratch.mkdir(parents=True, exist_ok=True)
    base = write_base(options.work, options.rows)
    with open_lake(scratch / "lake") as lake:
        ours, peer = platform_table(lake, "ours", base, 3), peer_table(lake, "peer_v3", base, 3)
        platform, by_hand = run_commits(options, ours, peer, scratch)
    print("every row was exactly right at the end")
    report_series(report, "platform, v3", platform)
    if by_hand.commits_s:
        report_series(report, "window + MERGE, v3, no maintenance", by_hand)


if __name__ == "__main__":
    main()
