"""Options of all Java processes that tests start: they live too short for the work of the best compiler."""

import os
from typing import Final

SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -Xshare:auto"

VARIABLE: Final = "SPARK_SUBMIT_OPTS"
"""Environment variable with options that Spark's launcher gives to the process that it starts."""


def shorten_starts() -> None:
    """Give the options to every Spark that this process or a child of it starts, unless it has others."""
    os.environ.setdefault(VARIABLE, SHORT_LIVED)
