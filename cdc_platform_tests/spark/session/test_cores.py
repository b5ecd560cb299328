"""The number of tasks that run at once, from the master."""

import os
from typing import TYPE_CHECKING

import pytest

from cdc_platform.spark.session.session_settings import cores_of, local_cores

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("cores", "master"),
    [
        (1, "local"),
        (2, "local[2]"),
        (4, "local[4, 3]"),  # three tries of a task
        (os.cpu_count(), "local[*]"),
        (None, "local-cluster[2,1,1024]"),
        (None, "spark://master:7077"),
        (None, ""),
    ],
)
def test_the_master_has_the_cores_of_one_machine(cores: int | None, master: str) -> None:
    """A local master names its threads; what a cluster has is not known."""
    assert cores == cores_of(master)


@pytest.mark.integration
def test_a_session_reports_its_cores(spark: "SparkSession") -> None:
    """The session of the tests has two."""
    assert local_cores(spark) == 2
