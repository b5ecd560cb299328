"""Sessions whose Spark has ended, or has too little memory, detected in the errors of their calls."""

import re
import subprocess
import sys
from typing import Final

from cdc_platform.errors import OutOfMemory, SetupError, SparkUnreachable

_LIBRARIES: Final = frozenset({"py4j", "pyspark"})
_ENDS: Final = re.compile(
    "RejectedExecutionException|Shutdown in progress|stopped SparkContext|SparkContext was shut down"
)
"""Messages of Java while its process ends."""
_SERVER_ENDED: Final = re.compile(
    r"StatusCode\.(?:UNAVAILABLE|UNAUTHENTICATED)|failed to connect to all addresses|INVALID_HANDLE\.SESSION_"
)
"""Messages of a client whose server has ended, or is another one, which does not know its session."""
_MEMORY: Final = re.compile(
    r"[^\n]*(?:java\.lang\.OutOfMemoryError|SparkOutOfMemoryError|UNABLE_TO_ACQUIRE_MEMORY"
    r"|Not enough memory to build and broadcast|is bigger than spark\.driver\.maxResultSize"
    r"|exceeding (?:physical |virtual )?memory limits|Python worker exited unexpectedly)[^\n]*"
)
"""Lines of Spark about memory; the system kills Python's workers where it has none left."""
_TASK_MEMORY: Final = re.compile(r"^(?:MemoryError|pyarrow\.lib\.ArrowMemoryError)[^\n]*", re.MULTILINE)
"""The line of a task in Python that got no memory."""
_TASK: Final = re.compile(r"Traceback \(most recent call last\):.*?(?=\n\s*at |\Z)", re.DOTALL)
"""The error of Python in a task, up to Java's stack: a text of the source or the platform, not of Spark."""


def find_session_failure(error: BaseException | None) -> SetupError | None:
    """Return an error with advice if Spark has ended or has too little memory; None for other errors."""
    while error is not None:
        # Py4j passes on what the system says of a closed connection.
        if type(error).__module__.partition(".")[0] in _LIBRARIES or isinstance(error, ConnectionError):
            text = str(error)
            spark_text = _TASK.sub("", text)
            failure = (
                _find_memory_shortage(spark_text, text)
                or _find_ended_process(spark_text)
                or _find_ended_server(spark_text)
            )
            if failure is not None:
                return failure
        error = error.__cause__ or error.__context__
    return None


def _find_memory_shortage(spark_text: str, text: str) -> OutOfMemory | None:
    match = _MEMORY.search(spark_text) or _TASK_MEMORY.search(text)
    if match is None:
        return None
    return OutOfMemory(
        "Spark has too little memory for this cycle. Commits are kept. Raise the setting "
        "`spark.driver_memory`, or for the executors of a cluster `spark.executor.memory` and "
        f"`spark.executor.memoryOverhead` in `spark.conf`, and start again: {match[0].strip()}"
    )


def _find_ended_process(text: str) -> SparkUnreachable | None:
    process = _own_process()
    if process is None or (process.poll() is None and not _ENDS.search(text)):
        return None
    code = process.poll()
    end = f"was ended by signal {-code}" if code is not None and code < 0 else "has ended"
    return SparkUnreachable(
        f"Spark's Java process {end}. Commits are kept: start again, and the next cycle resumes from them. "
        "If the machine was short of memory, lower the setting `spark.driver_memory` or stop other programs."
    )


def _own_process() -> "subprocess.Popen[bytes] | None":
    """Return the Java process that this process has started, if it has started one."""
    # Commands that need no Spark do not import it.
    pyspark = sys.modules.get("pyspark")
    gateway = pyspark.SparkContext._gateway if pyspark is not None else None  # noqa: SLF001  it has no public name
    return getattr(gateway, "proc", None)


def _find_ended_server(text: str) -> SparkUnreachable | None:
    match = _SERVER_ENDED.search(text)
    if match is None or _own_process() is not None:
        return None
    return SparkUnreachable(
        "The Spark Connect server has ended, or was started again. Commits are kept: start the server if it "
        f"does not run, and then this command again; the next cycle resumes from them. Spark said: {match[0]}"
    )
