"""Sessions whose Spark has ended, or has too little memory: the error says so, and what to do."""

import subprocess
import sys
from typing import Final

import pytest
from pyspark.errors import PythonException
from pyspark.errors.exceptions.connect import SparkConnectGrpcException

from cdc_platform.commands.error_texts import expected_error
from cdc_platform.errors import OutOfMemory, SparkUnreachable
from cdc_platform.spark.session.session_failures import find_session_failure
from cdc_platform_tests.spark_fixtures import require_java

KILLED = """
from pyspark import SparkContext, java_gateway
from cdc_platform.commands.error_texts import error_text, expected_error
SparkContext._gateway = gateway = java_gateway.launch_gateway()
print(expected_error(OSError("of something else")))
try:
    gateway.jvm.java.util.ArrayList(2**31 - 8)
except Exception as error:
    print(error_text(error))
gateway.proc.kill()
gateway.proc.wait()
try:
    gateway.jvm.System.nanoTime()
except Exception as error:
    print(error_text(error))
"""


TASK: Final = """(org.apache.spark.SparkException) Job aborted due to stage failure: Task 0 in stage 3.0 \
failed 1 times, most recent failure: Lost task 0.0 in stage 3.0 (TID 3) (worker executor driver): \
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "spanner/client/grpc_reads.py", line 88, in read
    yield from call
grpc._channel._MultiThreadedRendezvous: <_MultiThreadedRendezvous of RPC that terminated with:
\tstatus = StatusCode.UNAVAILABLE
\tdetails = "failed to connect to all addresses; last error: UNKNOWN: Failed to connect to remote host"
>

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "worker.py", line 2076, in main
    process()
cdc_platform.errors.SourceUnreachable: 503 failed to connect to all addresses
"""
"""The error of a task whose source does not answer."""
JAVA: Final = """
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
"""


@pytest.mark.integration
def test_a_full_heap_and_a_killed_java_process_are_named() -> None:
    """Every command ends with the advice instead of the traceback of a closed connection."""
    require_java()
    command = [sys.executable, "-c", KILLED]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    expected = (
        "None",
        "OutOfMemory: Spark has too little memory for this cycle. Commits are kept. Raise the setting",
        "SparkUnreachable: Spark's Java process was ended by signal 9. Commits are kept: start again",
    )
    assert all(line.startswith(text) for text, line in zip(expected, output, strict=True)), output


@pytest.mark.parametrize(
    "code",
    ["INVALID_HANDLE.SESSION_CHANGED", "failed to connect to all addresses", "StatusCode.UNAUTHENTICATED"],
)
def test_a_server_that_has_ended_is_named(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not answer for ten minutes, or, started again, does not know its predecessor's sessions."""
    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    failure = expected_error(SparkConnectGrpcException(f"[{code}] The handle is invalid"))
    assert isinstance(failure, SparkUnreachable)
    assert "The Spark Connect server has ended, or was started again" in str(failure)


def test_other_errors_keep_their_tracebacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection of another library, and a query that Spark refuses, do not end a session."""
    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    for error in (ConnectionRefusedError("refused"), SparkConnectGrpcException("[DIVIDE_BY_ZERO] by zero")):
        assert find_session_failure(error) is None


@pytest.mark.parametrize("stack", ["", JAVA])
def test_what_a_source_says_in_a_task_is_not_of_the_server(
    monkeypatch: pytest.MonkeyPatch, stack: str
) -> None:
    """A source that does not answer is tried again; what Java says of the task afterwards still counts."""
    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    assert find_session_failure(SparkConnectGrpcException(TASK + stack)) is None
    full = f"{TASK}{JAVA}Caused by: java.lang.OutOfMemoryError: Java heap space"
    assert isinstance(find_session_failure(SparkConnectGrpcException(full)), OutOfMemory)


@pytest.mark.parametrize("line", ["MemoryError", "pyarrow.lib.ArrowMemoryError: malloc of size 64 failed"])
def test_a_task_in_python_without_memory_is_named(line: str) -> None:
    """A task holds a row group of raw records, whose rows may be large."""
    assert isinstance(find_session_failure(PythonException(f"{TASK}{line}\n{JAVA}")), OutOfMemory)
