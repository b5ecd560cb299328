"""Data sources are made known to any session of a JVM."""

from typing import TYPE_CHECKING

import pytest
from pyspark.sql.datasource import DataSource

from cdc_platform.sources.loading import load_with

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Known(DataSource):
    """A data source of which only the columns are asked."""

    @classmethod
    def name(cls) -> str:
        """Name of the data source."""
        return "known_to_sessions"

    def schema(self) -> str:
        """Columns of its rows."""
        return "a int"


@pytest.mark.integration
def test_each_session_gets_its_data_sources(spark: "SparkSession") -> None:
    """A session knows a data source, whether or not another one knows it that was used before."""
    for session in (spark, spark, spark.newSession(), spark):
        assert load_with(session, Known, {}).columns == ["a"]
        spark.createDataFrame([], "b int")
