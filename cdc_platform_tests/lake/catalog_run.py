"""Two ticks of the small bank on another catalog; a process of its own, started by a test.

A Spark session keeps its catalog for life, and that of the other tests has the default one.
"""

import json
import sys

from pyspark.sql import SparkSession

from cdc_platform.lake.settings import LakeSettings
from cdc_platform.pipeline.maintain import maintain_lake
from cdc_platform.spark.config import spark_config
from cdc_platform_tests.pipeline.bank import balances, bank_pipeline, feed_tick
from cdc_platform_tests.pipelines import run_steps
from cdc_platform_tests.spark_fixtures import TEST_SPARK


def main(lake_path: str, catalog: str) -> None:
    """Run two ticks, and print the balances that readers see."""
    lake = LakeSettings(lake_path, json.loads(catalog))
    spark = SparkSession.builder.config(map={**spark_config(TEST_SPARK, lake)}).getOrCreate()
    pipeline = bank_pipeline(lake)
    for number in (1, 2):
        feed_tick(pipeline, number)
        run_steps(pipeline, spark)
    maintain_lake(pipeline, spark, thorough=True)
    sys.stdout.write(json.dumps(balances(pipeline)) + "\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
