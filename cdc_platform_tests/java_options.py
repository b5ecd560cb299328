"""Options of all Java processes that tests start: they live too short for the work of the best compiler."""

import os
from typing import Final

from cdc_platform.java.class_archive import is_complete
from cdc_platform.spark.launch.jars import spark_archive
from cdc_platform.spark.session import session_settings

# Without its best compiler Java keeps 48 MB for compiled code. Spark fills them within a minute; from then on
# a third of its time goes into throwing code away and compiling it again.
CODE_CACHE: Final = "-XX:ReservedCodeCacheSize=192m"
SHORT_LIVED: Final = f"-XX:TieredStopAtLevel=1 {CODE_CACHE} -XX:+UseSerialGC -XX:-UsePerfData -Xshare:auto"

INTERPRETED: Final = " ".join(f"-D{name}={value}" for name, value in session_settings.INTERPRETED.items())
"""For a Spark whose settings a test does not write: it works too briefly for code that it would compile."""

SHARED: Final = (
    "-Xmn512m -XX:CompileThresholdScaling=0.2 -XX:-BackgroundCompilation"
    " -Djdk.lang.Process.launchMechanism=VFORK"
)
"""For the Spark that tests share, which lives for minutes.

With a third of the room for new objects Java would collect garbage four times as often. Code is compiled
after a fifth of the calls, and its caller waits for that instead of interpreting on: cycles take a tenth less
of Java's processor time. The first one takes 2 s more, which a short-lived Java would not get back. Hadoop
starts a process for each file that it writes, to set its permissions; Java does so without its launcher.
"""

VARIABLE: Final = "SPARK_SUBMIT_OPTS"
"""Environment variable with options that Spark's launcher gives to the process that it starts."""


ENGINE_SHORT_LIVED: Final = f"-XX:TieredStopAtLevel=1 {CODE_CACHE} -XX:-UsePerfData -Xshare:auto"
ENGINE_VARIABLE: Final = "PYDBZ_JVM_OPTS"
"""Environment variable with options of Debezium's engine, which chooses its garbage collector itself."""


def shorten_starts() -> None:
    """Give the options to every Spark and engine that we or our children start, unless they have others."""
    os.environ.setdefault(VARIABLE, SHORT_LIVED)
    os.environ.setdefault(ENGINE_VARIABLE, ENGINE_SHORT_LIVED)


def mapped_options() -> str:
    """Return the options of a Java of Spark's that no platform starts, so that it maps its archive, too."""
    archive = spark_archive()
    is_there = archive is not None and is_complete(archive)
    return f"{SHORT_LIVED} -XX:SharedArchiveFile={archive} -Xlog:cds*=off" if is_there else SHORT_LIVED
