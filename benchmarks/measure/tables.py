"""The benchmark's table as an Iceberg table and as a Delta table, each put back to its start at no cost."""

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from benchmarks.inputs.changes import CHECKSUM_SQL, FIRST_MOMENT_MICROS, TABLE, Checksum, base_checksum
from benchmarks.measure.harness import must_equal
from cdc_platform.lake.catalog.catalogs import open_catalog
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.new_tables import create_table
from cdc_platform.spark.launch.jars import start_config
from cdc_platform.spark.launch.spark_settings import SparkSettings

NAMESPACE = "bench"

PEER_SQL = (
    "CREATE TABLE {name} (id BIGINT, owner STRING, balance BIGINT, visits BIGINT, status STRING, "
    "updated_at TIMESTAMP) USING iceberg TBLPROPERTIES ('format-version'='{version}', "
    "'write.merge.mode'='merge-on-read', 'write.update.mode'='merge-on-read', "
    "'write.delete.mode'='merge-on-read', 'write.parquet.compression-codec'='zstd')"
)
"""What somebody who writes the merge by hand sets: merge-on-read, and Iceberg's defaults otherwise."""


@dataclass(frozen=True)
class Lake:
    """A Spark session and the catalog that it shares with pyiceberg."""

    spark: SparkSession
    catalog: Catalog


@contextmanager
def open_session(settings: SparkSettings, lake: LakeSettings) -> Iterator[SparkSession]:
    """Provide the one session of a benchmark, configured as the platform configures its own."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    Path(lake.path).mkdir(parents=True, exist_ok=True)
    spark = SparkSession.builder.config(map={**start_config(settings, lake)}).getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def open_lake(folder: Path, memory: str = "6g") -> Iterator[Lake]:
    """Provide a session and catalog for tables outside any pipeline, in a folder that it empties."""
    shutil.rmtree(folder, ignore_errors=True)
    settings = LakeSettings(path=str(folder))
    with open_session(SparkSettings(master="local[2]", driver_memory=memory), settings) as spark:
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS lake.{NAMESPACE}")
        yield Lake(spark, open_catalog(settings))


class IcebergTable:
    """An Iceberg table with the base rows, which returns to them by moving `main` back."""

    def __init__(self, lake: "Lake", name: str, files: Iterable[Path], create: Callable[[], object]) -> None:
        """Recreate the table and load the base rows."""
        self.spark, self.catalog = lake.spark, lake.catalog
        self.path, self.name = f"{NAMESPACE}.{name}", f"lake.{NAMESPACE}.{name}"
        self.spark.sql(f"DROP TABLE IF EXISTS {self.name} PURGE")
        create()
        self.spark.read.parquet(*(str(file) for file in files)).writeTo(self.name).append()
        self.base_snapshot_id = self.current_snapshot_id()

    def current_snapshot_id(self) -> int:
        """Return the snapshot that readers see."""
        return self.snapshot_id("main")

    def snapshot_id(self, ref: str) -> int:
        """Return the snapshot that a branch points at."""
        return self.catalog.load_table(self.path).metadata.refs[ref].snapshot_id

    def reset(self) -> None:
        """Let readers see the base rows again."""
        self.spark.sql(f"CALL lake.system.set_current_snapshot('{self.path}', {self.base_snapshot_id})")

    def verify(self, expected: Checksum) -> None:
        """Make sure that the table is exactly right."""
        row = self.spark.sql(CHECKSUM_SQL.format(table=self.name)).collect()[0]
        must_equal(expected, Checksum(**row.asDict()), self.name)


def platform_table(lake: Lake, name: str, files: Iterable[Path], version: int) -> IcebergTable:
    """Return a table made as the platform makes it."""
    create = partial(create_table, lake.catalog, (NAMESPACE, name), TABLE, version)
    return IcebergTable(lake, name, files, create)


def peer_table(lake: Lake, name: str, files: Iterable[Path], version: int) -> IcebergTable:
    """Return a table made as somebody without the platform would make it."""
    statement = PEER_SQL.format(name=f"lake.{NAMESPACE}.{name}", version=version)
    return IcebergTable(lake, name, files, partial(lake.spark.sql, statement))


def link_copy(source: Path, target: Path) -> None:
    """Put a copy of a folder of immutable files into place by hard links."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, copy_function=os.link)


def checksum_of_batches(batches: Iterable[pa.RecordBatch]) -> Checksum:
    """Return the checksum of a table that is read as Arrow batches."""
    total = base_checksum(0)
    for batch in batches:
        part = _checksum_of_batch(batch)
        pairs = zip(vars(total).values(), vars(part).values(), strict=True)
        total = Checksum(*(left + right for left, right in pairs))
    return total


def _checksum_of_batch(batch: pa.RecordBatch) -> Checksum:
    owners = pc.cast(pc.utf8_slice_codeunits(pc.cast(batch["owner"], pa.string()), 6), pa.int64())
    statuses = pc.cast(pc.utf8_slice_codeunits(pc.cast(batch["status"], pa.string()), 7), pa.int64())
    moments = pc.subtract(pc.cast(batch["updated_at"], pa.int64()), FIRST_MOMENT_MICROS)
    columns = (batch["id"], owners, batch["balance"], batch["visits"], statuses, moments)
    return Checksum(batch.num_rows, *(pc.sum(column).as_py() or 0 for column in columns))
