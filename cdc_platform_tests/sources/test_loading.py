"""Data sources are made known to any session of a JVM."""

from typing import TYPE_CHECKING

import pytest
from pyspark.sql.datasource import DataSource

from cdc_platform.sources.loading import make_known

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Known(DataSource):
    """A data source that nobody reads."""

    @classmethod
    def name(cls) -> str:
        """Name of the data source."""
        return "known_to_sessions"


@pytest.mark.integration
def test_a_session_may_know_a_data_source_already(spark: "SparkSession") -> None:
    """It is made known again to a session, and to one that was made from it."""
    for session in (spark, spark, spark.newSession()):
        make_known(session, Known)
