"""One million changes into ten million rows: the platform's net changes and merge, and its peers.

The process that runs the cycle merges net changes of this size; Spark's split merge, which larger ones
take, is measured in comparison. Peers in the same run: a hand-written `row_number` window and Iceberg MERGE
INTO (format versions 2 and 3, merge-on-read), and delta-rs where `deltalake` is installed.
"""

import argparse
import importlib.util
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.inputs.changes import TABLE, Checksum, History, write_base
from benchmarks.measure.harness import Report, arguments, interleaved, must_equal, timed
from benchmarks.measure.tables import (
    IcebergTable,
    checksum_of_batches,
    link_copy,
    open_lake,
    peer_table,
    platform_table,
)
from cdc_platform.lake.commits.commits import BRANCH, head
from cdc_platform.lake.local_writer.local_table import open_local
from cdc_platform.model.stream.records import ChangeKind
from cdc_platform.pipeline.merging.local_merge import commit_merge, plan_merge
from cdc_platform.pipeline.merging.local_rows import LocalNetChanges
from cdc_platform.spark.tables.merge import append_inserted, merge_existing
from cdc_platform.spark.tables.net_changes import (
    ACTION,
    APPEND,
    NOTHING,
    REMOVE,
    UPDATE,
    NetChanges,
    compute_net_changes,
    measure_net_changes,
)
from cdc_platform.spark.tables.typed_columns import KIND, ORDINAL

PLATFORM = "platform, v3"
COLUMNS = [column.name for column in TABLE.columns]
VALUES = [column.name for column in TABLE.value_columns]
PEER_MERGE = f"""
    MERGE INTO {{table}} t USING (
        SELECT * FROM (
            SELECT *, row_number() OVER (PARTITION BY id ORDER BY {ORDINAL} DESC) AS newest FROM {{changes}}
        ) WHERE newest = 1
    ) s ON t.id = s.id
    WHEN MATCHED AND s.{KIND} = 'delete' THEN DELETE
    WHEN MATCHED THEN UPDATE SET {", ".join(f"t.{name} = s.{name}" for name in VALUES)}
    WHEN NOT MATCHED AND s.{KIND} <> 'delete' THEN
        INSERT ({", ".join(COLUMNS)}) VALUES ({", ".join(f"s.{name}" for name in COLUMNS)})
"""


@dataclass(frozen=True)
class Changes:
    """A file of changes, and what the table must be after them."""

    file: Path
    expected: Checksum
    has_partial_updates: bool = False


@dataclass(frozen=True)
class Job:
    """The same changes of the same keys for every candidate, as whole rows and as partial updates.

    ``all_named`` are partial updates that name all columns, although each of them could leave some out.
    """

    base: list[Path]
    changes: Changes
    partial_updates: Changes
    all_named: Changes
    scratch: Path


def local_merge(table: IcebergTable, changes: Changes) -> None:
    """Do what a cycle does to one table: compute net changes, merge without Spark, publish."""
    with net_changes_of(table, changes) as net_changes:
        measure_net_changes(
            net_changes, TABLE, has_size=True, has_partial_updates=changes.has_partial_updates
        )
        begin_branch(table)
        actual = table.catalog.load_table(table.path)
        base = head(actual)
        local = open_local(actual, base) if base is not None else None
        if local is None:
            raise ValueError(f"{table.name} is not merged here")
        rows = LocalNetChanges(net_changes.toArrow(), TABLE, changes.has_partial_updates, trusts_inserts=True)
        merge = plan_merge(local, rows)
        if merge is None or merge.lacks_keys:
            raise ValueError(f"{table.name} is not merged here")
        commit_merge(actual, merge, {})
        publish(table)


def split_merge(table: IcebergTable, changes: Changes) -> None:
    """Do what a cycle does with more net changes: merge existing keys and append inserted ones by Spark."""
    with net_changes_of(table, changes) as net_changes:
        net_changes.createOrReplaceTempView("net_changes")
        stats = measure_net_changes(net_changes, TABLE, has_partial_updates=changes.has_partial_updates)
        begin_branch(table)
        branch = f"{table.name}.branch_cycle"
        if stats.existing:
            merged = NetChanges("net_changes", net_changes, stats, TABLE, changes.has_partial_updates)
            merge_existing(table.spark, merged, branch)
        append_inserted(net_changes, branch, TABLE, {})
        publish(table)


def whole_rows(changes: DataFrame) -> DataFrame:
    """Return the net changes of typed whole rows; a cycle does so in the log, before it types them."""
    newest = F.max(F.struct(ORDINAL, KIND, *VALUES)).alias("newest")
    inserted = F.min_by(F.col(KIND) == ChangeKind.INSERT.value, ORDINAL).alias("inserted")
    keys = [column.name for column in TABLE.key_columns]
    action = (
        f"CASE WHEN newest.{KIND} = 'delete' THEN if(inserted, '{NOTHING}', '{REMOVE}') "
        f"ELSE if(inserted, '{APPEND}', '{UPDATE}') END AS {ACTION}"
    )
    values = (f"newest.{name} AS {name}" for name in VALUES)
    return changes.groupBy(*keys).agg(newest, inserted).selectExpr(*keys, *values, action)


@contextmanager
def net_changes_of(table: IcebergTable, changes: Changes) -> Iterator[DataFrame]:
    """Provide the net changes, computed once."""
    frame = table.spark.read.parquet(str(changes.file))
    computed = compute_net_changes(frame, TABLE) if changes.has_partial_updates else whole_rows(frame)
    net_changes = computed.persist()
    try:
        yield net_changes
    finally:
        net_changes.unpersist()


def begin_branch(table: IcebergTable) -> None:
    """Begin the branch that a cycle merges on."""
    version = table.current_snapshot_id()
    table.spark.sql(f"ALTER TABLE {table.name} CREATE OR REPLACE BRANCH {BRANCH} AS OF VERSION {version}")


def publish(table: IcebergTable) -> None:
    """Let readers see the branch."""
    version = table.snapshot_id(BRANCH)
    table.spark.sql(f"CALL lake.system.set_current_snapshot('{table.path}', {version})")


def window_merge(table: IcebergTable, changes: Changes) -> None:
    """Do the same by hand: the newest change of each key by a window, then one full MERGE."""
    table.spark.read.parquet(str(changes.file)).createOrReplaceTempView("changes")
    table.spark.sql(PEER_MERGE.format(table=table.name, changes="changes"))


def on_iceberg(
    table: IcebergTable, changes: Changes, merge: Callable[[IcebergTable, Changes], None]
) -> Callable[[], float]:
    """Return a candidate that merges into an Iceberg table, verifies it and puts it back."""

    def run() -> float:
        table.reset()
        seconds = timed(lambda: merge(table, changes))
        table.verify(changes.expected)
        return seconds

    return run


def delta_rs(job: Job) -> Callable[[], float]:
    """Return the candidate that merges with delta-rs, newest change of each key by Arrow."""
    from deltalake import DeltaTable, write_deltalake

    pristine, target = job.scratch / "delta-base", job.scratch / "delta"
    if not pristine.exists():
        begun = job.scratch / "delta-begun"
        shutil.rmtree(begun, ignore_errors=True)
        for file in job.base:
            write_deltalake(str(begun), pq.read_table(file), mode="append")
        begun.rename(pristine)

    def merge() -> None:
        newest = newest_per_key(pq.read_table(job.changes.file))
        (
            DeltaTable(str(target))
            .merge(newest, "t.id = s.id", source_alias="s", target_alias="t")
            .when_matched_delete(f"s.{KIND} = 'delete'")
            .when_matched_update({name: f"s.{name}" for name in VALUES})
            .when_not_matched_insert({name: f"s.{name}" for name in COLUMNS}, f"s.{KIND} <> 'delete'")
            .execute()
        )

    def run() -> float:
        link_copy(pristine, target)
        seconds = timed(merge)
        checksum = checksum_of_batches(DeltaTable(str(target)).to_pyarrow_dataset().to_batches())
        must_equal(job.changes.expected, checksum, "delta-rs")
        return seconds

    return run


def newest_per_key(changes: pa.Table) -> pa.Table:
    """Return the change with the greatest ordinal of each key."""
    newest = changes.select(["id", ORDINAL]).group_by("id").aggregate([(ORDINAL, "max")])
    return changes.join(newest.select([f"{ORDINAL}_max"]), ORDINAL, f"{ORDINAL}_max", join_type="inner")


def prepare(options: argparse.Namespace) -> Job:
    """Write the inputs."""
    scratch = options.work / f"merge-{options.rows}"
    scratch.mkdir(parents=True, exist_ok=True)
    base = write_base(options.work, options.rows)
    shares = (None, options.named_share, 1.0)
    whole, partial, all_named = (write_changes(options, scratch, share) for share in shares)
    return Job(base, whole, partial, all_named, scratch)


def write_changes(options: argparse.Namespace, scratch: Path, named_share: float | None) -> Changes:
    """Write the changes, as whole rows or as partial updates that name a share of the columns."""
    pool = max(1, options.changes * 384 // 1000)
    history = History(options.rows, options.seed, pool, named_share=named_share)
    changes = history.take(options.changes)
    path = scratch / f"changes-{options.changes}-{options.seed}-{named_share}.parquet"
    pq.write_table(changes, path, row_group_size=250_000)
    keys = len(changes["id"].unique())
    kind = "whole rows" if named_share is None else f"partial updates that name {named_share:.0%}"
    print(f"{len(changes):,} changes of {keys:,} keys into {options.rows:,} rows: {kind}")
    return Changes(path, history.checksum, has_partial_updates=named_share is not None)


def main() -> None:
    """Run the benchmark."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the table")
    parser.add_argument("--changes", type=int, default=1_000_000, help="changes to merge")
    parser.add_argument("--named-share", type=float, default=0.5, help="of the columns in a partial update")
    parser.add_argument("--rounds", type=int, default=4, help="rounds; the first, cold one is separate")
    options = parser.parse_args()
    report = Report("merge", options)
    job = prepare(options)
    with open_lake(job.scratch / "lake") as lake:
        ours = platform_table(lake, "ours", job.base, 3)
        v2, v3 = (peer_table(lake, f"peer_v{version}", job.base, version) for version in (2, 3))
        candidates = {
            PLATFORM: on_iceberg(ours, job.changes, local_merge),
            "platform, v3, partial updates": on_iceberg(ours, job.partial_updates, local_merge),
            "platform, v3, all columns named": on_iceberg(ours, job.all_named, local_merge),
            "platform, v3, by Spark": on_iceberg(ours, job.changes, split_merge),
            "platform, v3, by Spark, partial updates": on_iceberg(ours, job.partial_updates, split_merge),
            "window + MERGE, v2": on_iceberg(v2, job.changes, window_merge),
            "window + MERGE, v3": on_iceberg(v3, job.changes, window_merge),
        }
        if importlib.util.find_spec("deltalake"):
            candidates["delta-rs"] = delta_rs(job)
        else:
            print("delta-rs was left out: `pip install -e '.[dev]'` adds it")
        begin = time.perf_counter()
        seconds = interleaved(options.rounds, candidates)
        print(f"all rounds took {time.perf_counter() - begin:.0f} s; every result was exactly right")
    for name, rounds in seconds.items():
        report.note(f"{name}: cold", rounds[0], "s")
    report.compare({n: r[1:] or r for n, r in seconds.items()}, PLATFORM, options.changes, "changes/s")


if __name__ == "__main__":
    main()
