"""The number of concurrent tasks."""

import os
import re
from typing import Final

from pyspark.sql import SparkSession

LOCAL: Final = re.compile(r"local(?:\[(\d+|\*)[^\]]*\])?")


def local_cores(spark: SparkSession) -> int | None:
    """Return the number of concurrent tasks of Spark on one machine; None for a cluster, which may grow."""
    return cores_of(spark.conf.get("spark.master", None) or "")


def cores_of(master: str) -> int | None:
    """Return the same from the master's address."""
    match = LOCAL.fullmatch(master)
    if match is None:
        return None
    cores = match[1] or "1"
    return (os.cpu_count() or 1) if cores == "*" else int(cores)
