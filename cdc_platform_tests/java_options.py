"""Options of all Java processes that tests start: they live too short for the work of the best compiler."""

import os
from typing import Final

from cdc_platform.spark import small

SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -Xshare:auto"

INTERPRETED: Final = " ".join(f"-D{name}={value}" for name, value in small.INTERPRETED.items())
"""For a Spark whose settings a test does not write: it works too briefly for code that it would compile."""

VARIABLE: Final = "SPARK_SUBMIT_OPTS"
"""Environment variable with options that Spark's launcher gives to the process that it starts."""


def shorten_starts() -> None:
    """Give the options to every Spark that this process or a child of it starts, unless it has others."""
    os.environ.setdefault(VARIABLE, SHORT_LIVED)
