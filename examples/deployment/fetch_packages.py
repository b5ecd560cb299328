"""Put the packages of Spark into the image: those of a lake with a PostgreSQL catalog and an S3 bucket."""

from pyspark.sql import SparkSession

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.spark.launch.config import spark_config
from cdc_platform.spark.launch.spark_settings import SparkSettings

LAKE = LakeSettings("s3://lake/shop", {"type": "sql", "uri": "postgresql+psycopg2://postgres:5432/lake"})

if __name__ == "__main__":
    packages = spark_config(SparkSettings(), LAKE)["spark.jars.packages"]
    SparkSession.builder.master("local[1]").config("spark.jars.packages", packages).getOrCreate().stop()
