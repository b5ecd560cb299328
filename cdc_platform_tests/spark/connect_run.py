"""Two cycles of the small bank on a Spark Connect server; a separate process, started by a test.

One process cannot hold a classic and a Connect session, and the other tests have a classic one.
"""

import json
import sys

import pyarrow as pa
from pyspark.sql import SparkSession

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.base.names import quote_text
from cdc_platform.pipeline.cycle import run_cycle
from cdc_platform.pipeline.on_demand.rebuild import rebuild_table
from cdc_platform.pipeline.publishing.maintain import maintain_lake
from cdc_platform.spark.frames.table_frames import local_frame
from cdc_platform.spark.launch.config import spark_config
from cdc_platform.spark.launch.spark_settings import SparkSettings
from cdc_platform_tests.pipeline.bank import SECOND, balances, feed_cycle, opening
from cdc_platform_tests.support.history import RawRow
from cdc_platform_tests.support.pipelines import (
    ACCOUNTS,
    START,
    TRANSFERS,
    make_pipeline,
    run_steps,
    source_of,
    window_row,
)


def main(lake_path: str, remote: str) -> None:
    """Run everything that needs Spark, and print the balances that readers see."""
    lake = LakeSettings(lake_path)
    conf = spark_config(SparkSettings(remote=remote), lake)
    spark = SparkSession.builder.config(map={**conf}).getOrCreate()
    text = "${env:HOME}"
    assert spark.sql(f"SELECT {quote_text(text)}").first() == (text,)  # as it stands, in a key as anywhere
    for numbers in ([7], []):
        rows = pa.table({"id": pa.array(numbers, pa.int64())})
        assert rows == local_frame(spark, rows).toArrow()
    pipeline = make_pipeline(lake, (ACCOUNTS, TRANSFERS), name="connect")
    for number in (1, 2):
        feed_cycle(pipeline, number)
        run_steps(pipeline, spark)
    maintain_lake(pipeline, spark, thorough=True)
    rebuild_table(pipeline, spark, "accounts")
    run_steps(pipeline, spark)
    source = source_of(pipeline)
    source.now_micros = START + 4 * SECOND
    source.answer = lambda cycle, windows: [_numbered(row, cycle) for row in _rows(*map(window_row, windows))]
    run_cycle(pipeline, spark)
    sys.stdout.write(json.dumps(balances(pipeline)) + "\n")
    spark.stop()


def _rows(*reports: RawRow) -> list[RawRow]:
    return [opening(5, 500, START + 3 * SECOND + 1), *reports]


def _numbered(row: RawRow, cycle: int) -> RawRow:
    return {**row, "cycle": cycle}


if __name__ == "__main__":
    main(*sys.argv[1:])
