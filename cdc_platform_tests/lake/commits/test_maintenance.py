"""Expiry of snapshots while other commits happen, and of files that belong to no snapshot."""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest

from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import KEPT_BY_TIME, LakeSettings
from cdc_platform.lake.commits.maintenance import (
    MERGED_FILE_BYTES,
    compact_small_files,
    delete_orphans,
    expire_snapshots,
    merged_file_bytes,
)
from cdc_platform.lake.commits.metadata_files import delete_old_metadata
from cdc_platform.lake.commits.snapshots import find_expendable
from cdc_platform_tests.spark_fixtures import write_checksums

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAR = 2**62
ROWS = pa.table({"id": [1]})
DAY_S: Final = 24 * 3600


@pytest.mark.integration
def test_expiry_waits_where_a_snapshot_has_got_a_tag(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """A snapshot pinned between the search for old ones and their expiry stays; the others go later."""
    lake = Lake(session_lake, "expiring")
    table = lake.catalog.create_table("expiring.t", ROWS.schema)
    for _ in range(4):
        table.append(ROWS)
    first, second, third = find_expendable(table, FAR, keep_newest=1)
    table.manage_snapshots().create_tag(second, "pinned").commit()

    assert expire_snapshots(spark, "expiring.t", (first, second, third)) == 0
    table.refresh()
    assert find_expendable(table, FAR, keep_newest=1) == (first, third)
    assert expire_snapshots(spark, "expiring.t", (first, third)) > 0
    left = {snapshot.snapshot_id for snapshot in table.refresh().metadata.snapshots}
    assert {first, second, third} & left == {second}


@pytest.mark.parametrize(
    ("table_gib", "small_mib", "expected_mib"),
    [(0, 8, 32), (6, 8, 32), (50, 8, 256), (1000, 8, 512), (6, 64, 128)],
)
def test_files_grow_with_the_table(table_gib: int, small_mib: int, expected_mib: int) -> None:
    """A large table has few enough files for a local merge; the next compaction finds no file small."""
    assert merged_file_bytes(table_gib * 2**30, small_mib * 2**20) == expected_mib * 2**20


@pytest.mark.integration
@pytest.mark.parametrize(
    ("target_bytes", "least", "most"), [(2**18, 2, 3), (MERGED_FILE_BYTES, 1, 1)], ids=["small", "merged"]
)
def test_small_files_become_files_of_a_size(
    spark: "SparkSession", session_lake: LakeSettings, target_bytes: int, least: int, most: int
) -> None:
    """The copied chunks of a large table become several files, which a local merge can search one by one."""
    rows = pa.table({"value": [os.urandom(64) for _ in range(1000)]})
    name = f"compacted.t{target_bytes}"
    table = Lake(session_lake, "compacted").catalog.create_table(name, rows.schema)
    for _ in range(8):
        table.append(rows)
    assert compact_small_files(spark, table.refresh(), 2**17, target_bytes) == 8
    files = list(table.refresh().scan().plan_files())
    assert least <= len(files) <= most
    assert sum(task.file.record_count for task in files) == 8 * len(rows)


@pytest.mark.integration
def test_checksums_go_with_their_file(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """Hadoop writes checksums next to each file of Spark's; the platform deletes them with the file."""
    properties = {**KEPT_BY_TIME, "write.metadata.previous-versions-max": "2"}
    catalog = Lake(session_lake, "summed").catalog
    catalog.create_table("summed.t", ROWS.schema, properties=properties)
    write_checksums(spark, are_written=True)
    try:
        for number in range(6):
            spark.sql(f"ALTER TABLE lake.summed.t SET TBLPROPERTIES ('number' = '{number}')")
    finally:
        write_checksums(spark, are_written=False)
    # Of seven metadata files, the first of which is pyiceberg's, the log names two.
    assert delete_old_metadata(catalog.load_table("summed.t"), FAR) == 4
    left = {path.name for path in (Path(session_lake.path) / "summed" / "t" / "metadata").iterdir()}
    files = {name for name in left if name.endswith(".metadata.json")}
    assert len(files) == 3
    assert left == files | {f".{name}.crc" for name in files}


@pytest.mark.integration
def test_old_files_that_no_metadata_names_are_deleted(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """Of the files of killed runs the old ones go; a commit under way keeps its files, and so do readers."""
    few = {"write.metadata.previous-versions-max": "1"}
    table = Lake(session_lake, "orphaned").catalog.create_table("orphaned.t", ROWS.schema, properties=few)
    for _ in range(3):
        table.append(ROWS)
    folder = Path(session_lake.path) / "orphaned" / "t"
    named = {path for path in folder.rglob("*") if path.is_file()}
    old = [folder / "data" / "old.parquet", folder / "metadata" / "00007-old.metadata.json"]
    young = folder / "data" / "young.parquet"
    for file in (*old, young):
        file.write_bytes(b"half a file")
    two_days_ago = time.time() - 2 * DAY_S
    for file in (*named, *old):
        os.utime(file, (two_days_ago, two_days_ago))

    before_micros = int((time.time() - 1.5 * DAY_S) * 1_000_000)
    assert delete_orphans(spark, table, before_micros) == len(old)
    assert {path for path in folder.rglob("*") if path.is_file()} == named | {young}
    assert len(table.refresh().scan().to_arrow()) == 3
    # No file of a young table is old: Spark is not asked.
    assert delete_orphans(spark, table, int((time.time() - 9 * DAY_S) * 1_000_000)) == 0
