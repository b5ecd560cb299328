"""The number of tasks that run at once."""

import os
import re
from typing import Final

from pyspark.sql import SparkSession

LOCAL: Final = re.compile(r"local(?:\[(\d+|\*)[^\]]*\])?")


def local_cores(spark: SparkSession) -> int | None:
    """Return how many tasks a Spark on one machine runs at once; None of a cluster, which may grow."""
    return cores_of(spark.conf.get("spark.master", None) or "")


def cores_of(master: str) -> int | None:
    """Return the same by the master's address."""
    match = LOCAL.fullmatch(master)
    if match is None:
        return None
    cores = match[1] or "1"
    return (os.cpu_count() or 1) if cores == "*" else int(cores)
