"""Spark sessions, and the resource that the assets of a pipeline share in a run."""

import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stderr
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import dagster as dg
from dagster_pyspark import LazyPySparkResource

from cdc_platform.claims import claim_run, refuse_cancelled
from cdc_platform.errors import CdcError, JarsUnavailable, SettingError, SetupError, SparkUnreachable
from cdc_platform.java.java_program import check_java
from cdc_platform.lake.catalog.access import reaching
from cdc_platform.lake.state.lost_commits import revert_lost_commits
from cdc_platform.model.base.cached_values import cached_value
from cdc_platform.model.base.progress import Progress
from cdc_platform.model.base.progress_lines import report_lines
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.spark.launch.config import launch_secrets, session_secrets, spark_config
from cdc_platform.spark.launch.connect_token import CLIENT_VARIABLE
from cdc_platform.spark.launch.connect_token import VARIABLE as TOKEN_VARIABLE
from cdc_platform.spark.launch.interrupted_start import interruptible_start
from cdc_platform.spark.launch.jars import check_jars, exclusive_fetch, start_config
from cdc_platform.spark.launch.properties import started_with
from cdc_platform.spark.session.lake_sessions import open_lake_session, running_session, serves_lake
from cdc_platform.spark.session.running_tasks import watch_tasks
from cdc_platform.spark.session.shipping import ship_package

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECT_PORT: Final = 15002
PROBE_S: Final = 5.0
KEPT_LINES: Final = 200
STDERR: Final = 2

SPARK_IS_QUIET: Final = threading.Event()
"""Set when the process is about to end; Spark's output about its own end is then dropped."""

REFUSED: Final = "authentication token"
"""Part of a server's answer to a client with a wrong token, or without one."""
UNRESOLVED: Final = ("unresolved dependenc", "server access error", "download failed", "not found: ")


def spark_resource(settings: PipelineSettings) -> LazyPySparkResource:
    """Return the resource that creates the session at first use."""
    return LazyPySparkResource(spark_config=start_config(settings.spark, settings.lake))


def spark_session(settings: PipelineSettings, report: Callable[[str], None] | None = None) -> "SparkSession":
    """Return the session of a pipeline, started if need be.

    Args:
        settings: the pipeline's settings.
        report: called with each line that Spark's launcher prints while it fetches jars.

    Raises:
        JavaMissing: no Java, or one too old, was found.
        JarsUnavailable: Spark's packages could not be fetched.
        SparkUnreachable: the Spark Connect server does not answer.
        SetupError: the session did not start; the error contains Spark's own message.
        SettingError: the process has started Spark for another lake, without jars that this one needs.
    """
    return start_session(spark_resource(settings), settings, report)


def start_session(
    resource: LazyPySparkResource, settings: PipelineSettings, report: Callable[[str], None] | None = None
) -> "SparkSession":
    """Return the resource's session; raise an error with advice if it does not start."""
    # Otherwise Spark's workers would run the first python3 of the PATH.
    os.environ["PYSPARK_PYTHON"] = settings.spark.conf.get("spark.pyspark.python", sys.executable)
    session = _open_session(resource, settings, report)
    for name, value in session_secrets(settings.spark, settings.lake).items():
        session.conf.set(name, value)
    if settings.spark.ships_package:
        ship_package(session)
    return session


def _open_session(
    resource: LazyPySparkResource, settings: PipelineSettings, report: Callable[[str], None] | None
) -> "SparkSession":
    if settings.spark.remote is not None:
        _probe(settings.spark.address)
        try:
            remote: SparkSession = resource.spark_session
        except Exception as error:
            if REFUSED not in str(error):
                raise
            raise SparkUnreachable(
                "The Spark Connect server rejects clients without its token. Set the environment variable "
                f"{TOKEN_VARIABLE} to that token, or work as the user who started the server with "
                f"`cdc-platform spark-server`: {settings.spark.address}"
            ) from error
        return remote
    _refuse_remote()
    check_java()
    check_jars(settings.spark)
    current = running_session()
    conf = spark_config(settings.spark, settings.lake)
    if current is not None and not serves_lake(current, conf):
        return open_lake_session(current, conf)
    secrets = launch_secrets(settings.spark, settings.lake)
    fetch = exclusive_fetch(resource.spark_config)
    with fetch, started_with(secrets), _launcher_output(report) as lines, interruptible_start():
        try:
            session: SparkSession = resource.spark_session
        except Exception as error:
            raise _start_error(settings, error, lines) from error
    if any("downloading http" in line.lower() for line in lines):
        check_jars(settings.spark)
    return session


def _probe(remote: str) -> None:
    """Raise at once if no server answers; the Spark client itself would try for minutes."""
    address = urlsplit(remote)
    try:
        socket.create_connection((address.hostname, address.port or CONNECT_PORT), PROBE_S).close()
    except OSError as error:
        raise SparkUnreachable(
            f"No Spark Connect server answers ({error}). Start it, or remove the setting `spark.remote` "
            f"to use a session of this process: {remote}"
        ) from error


def _refuse_remote() -> None:
    """Raise if the environment names a server, which Spark accepts only without settings of a session."""
    if CLIENT_VARIABLE in os.environ:
        server = os.environ[CLIENT_VARIABLE].partition(";")[0]
        raise SettingError(
            "spark.remote",
            f"is not set, but the environment variable {CLIENT_VARIABLE} is: unset it, or set `spark.remote` "
            f"if that server shall do the pipeline's work: {server}",
        )


@contextmanager
def _launcher_output(report: Callable[[str], None] | None) -> Iterator[list[str]]:
    """Collect the stderr output of Spark's launcher while it starts, and pass it on afterwards."""
    lines: list[str] = []
    read_end, write_end = os.pipe()
    copy = os.dup(STDERR)
    os.dup2(write_end, STDERR)
    os.close(write_end)
    is_started = threading.Event()

    def drain() -> None:
        with os.fdopen(read_end, encoding="utf-8", errors="replace") as output:
            for line in output:
                if is_started.is_set():
                    if not SPARK_IS_QUIET.is_set():
                        os.write(copy, line.encode())
                    continue
                del lines[:-KEPT_LINES]
                lines.append(line.rstrip())
                if report is not None:
                    report(line.rstrip())

    # The JVM keeps the pipe for its whole life, so a thread must read it.
    threading.Thread(target=drain, daemon=True, name="spark-output").start()
    try:
        with _own_messages(copy):
            yield lines
    finally:
        is_started.set()
        os.dup2(copy, STDERR)


def _own_messages(descriptor: int) -> AbstractContextManager[object]:
    """Send the process's own messages past the pipe; otherwise each report would be a line to report."""
    try:
        is_piped = sys.stderr.fileno() == STDERR
    except (OSError, ValueError):
        is_piped = False
    if not is_piped:
        return nullcontext()
    return redirect_stderr(os.fdopen(descriptor, "w", buffering=1, errors="replace", closefd=False))


def _start_error(settings: PipelineSettings, error: Exception, lines: list[str]) -> CdcError:
    output = "\n".join(lines[-20:])
    if any(sign in line.lower() for line in lines for sign in UNRESOLVED):
        return JarsUnavailable(
            f"Spark's packages could not be fetched: {', '.join(settings.spark.packages)}. Check the network "
            "and the setting `spark.conf` (`spark.jars.repositories`, `spark.jars.ivySettings`), or put the "
            f"jars into a folder and name it in `spark.jars_folder`. Spark said:\n{output}"
        )
    if isinstance(error, CdcError):
        return error
    return SetupError(f"Spark did not start ({type(error).__name__}: {error}). Spark said:\n{output}")


@dataclass(frozen=True)
class PipelineRun:
    """A pipeline within one run.

    Creating it has no effects, because Dagster also creates the resources of a run without running steps:
    its command line does so after the end, to read the results.
    """

    settings: PipelineSettings
    claim: Callable[[], None]
    progress: Progress = field(default_factory=Progress)
    """Progress of the run's steps, which its log shows while they take long."""

    @cached_value
    def pipeline(self) -> Pipeline:
        """The pipeline; the first access waits for the run's turn and opens it."""
        self.claim()
        pipeline = replace(open_pipeline(self.settings), progress=self.progress)
        with reaching(self.settings.lake):
            revert_lost_commits(pipeline.lake)
        return pipeline

    @cached_value
    def spark(self) -> "SparkSession":
        """The session that all steps of the run share, started at first use."""
        with self.progress.step("start of Spark"):
            session = start_session(spark_resource(self.settings), self.pipeline.settings)
        self.progress.count_tasks = watch_tasks(session)
        return session

    def close(self) -> None:
        """Release the resources of this run on a server; a local session ends with the process."""
        if "pipeline" in self.__dict__:
            self.pipeline.source.close()
        if self.settings.spark.remote is not None and "spark" in self.__dict__:
            self.spark.stop()


def run_resource(settings: PipelineSettings) -> dg.ResourceDefinition:
    """Return the resource of a pipeline's assets and checks."""

    def open_run(context: dg.InitResourceContext) -> Iterator[PipelineRun]:
        run = PipelineRun(settings, lambda: _claim(context, settings.name))
        try:
            with report_lines(run.progress.reports, context.log.info) if context.log else nullcontext():
                yield run
        finally:
            run.close()

    description = f"The pipeline `{settings.name}` within a run: its source, its lake and its Spark session."
    return dg.ResourceDefinition(open_run, description=description)


def _claim(context: dg.InitResourceContext, pipeline: str) -> None:
    if context.instance is not None and context.run is not None and context.log is not None:
        claim_run(context.instance, context.run.run_id, pipeline, context.log.info)


def find_run(context: dg.AssetExecutionContext | dg.AssetCheckExecutionContext, key: str) -> PipelineRun:
    """Return the object of `run_resource` from the context of an asset or a check.

    Raises:
        DagsterExecutionInterruptedError: somebody has terminated the run.
    """
    refuse_cancelled(context.instance, context.run.run_id)
    run = getattr(context.resources, key)
    assert isinstance(run, PipelineRun)
    return run
