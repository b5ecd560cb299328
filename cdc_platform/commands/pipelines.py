"""The pipelines of a command: their shared Spark session, and the work on them one after the other."""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from cdc_platform.commands.error_texts import expected_error, print_error
from cdc_platform.errors import SettingError
from cdc_platform.printing.lines import print_line
from cdc_platform.printing.progress_display import shown_step
from cdc_platform.stopping import stop_signals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_platform.lake.catalog.lake_settings import LakeSettings
    from cdc_platform.model.base.progress import TaskCount
    from cdc_platform.pipeline.opened.pipeline import Pipeline
    from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings

TaskCounter: TypeAlias = "Callable[[], TaskCount | None]"
Item = TypeVar("Item")
Result = TypeVar("Result")
OWN_SETTINGS: Final = frozenset({"table_format_version"})
"""Settings of `lake` and `spark` that may differ between pipelines in one process."""


def start_spark(settings: "PipelineSettings") -> "SparkSession":
    """Return the session of a pipeline; report slow steps of Spark's start, which may fetch packages."""
    from cdc_platform.resources import spark_session
    from cdc_platform.spark.session.lake_sessions import running_session

    if running_session() is not None:
        return spark_session(settings)
    start = time.monotonic()
    print_line(f"Starting Spark ({settings.spark.address}) ...", err=True)

    def report(line: str) -> None:
        if "downloading http" in line.lower():
            print_line(f"  {line.strip()}", err=True)

    with shown_step("start of Spark"):
        session = spark_session(settings, report)
    print_line(f"Spark is ready after {time.monotonic() - start:.1f} s.", err=True)
    return session


def share_spark(defs: Path, all_settings: "Sequence[PipelineSettings]") -> "list[PipelineSettings]":
    """Return the settings of pipelines that share the Spark of one process, in a session for each lake.

    It gets the packages of all pipelines, because a source, a catalog or a store may add its own.

    Raises:
        SettingError: two of them have different settings for `spark`, or for the one `lake` of a server.
    """
    from cdc_platform.spark.launch.config import packages_of

    all_packages = (name for settings in all_settings for name in packages_of(settings.spark, settings.lake))
    packages = tuple(dict.fromkeys(all_packages))
    shared_settings = [replace(each, spark=replace(each.spark, packages=packages)) for each in all_settings]
    first = shared_settings[0]
    for other in shared_settings[1:]:
        if names := _differing(first, other):
            raise SettingError(
                f"{defs}: {', '.join(names)}",
                f"differs between `{first.name}` and `{other.name}`, but one process has one Spark; nothing "
                "was run. Give them the same settings, or choose one with `--name`",
            )
    return shared_settings


def _differing(first: "PipelineSettings", other: "PipelineSettings") -> list[str]:
    """Return the paths of the settings that keep two pipelines from sharing a process."""
    lakes = () if first.spark.remote is None else (("lake", first.lake, other.lake),)
    return [
        f"{part}.{name}"
        for part, mine, theirs in (*lakes, ("spark", first.spark, other.spark))
        for name in (entry.name for entry in fields(mine))
        if name not in OWN_SETTINGS and getattr(mine, name) != getattr(theirs, name)
    ]


def print_name(name: str, all_settings: "Sequence[PipelineSettings]") -> None:
    """Print the name of a pipeline as a heading if several are covered."""
    if len(all_settings) > 1:
        print_line(f"pipeline {name}")


@shown_step("look at the lakes")
def open_existing_of(all_settings: "Sequence[PipelineSettings]") -> "list[Pipeline]":
    """Open the pipelines that have run, and report the others; the caller exits with 1 if there are any.

    Raises:
        CdcError: none of them has run, or none can be read; it is the error of the last one.
    """
    from cdc_platform.pipeline.opened.pipeline import open_existing

    return try_each(all_settings, open_existing)


def try_each(
    pipelines: Sequence[Item], work: Callable[[Item], Result], goes_on: Callable[[], bool] = lambda: True
) -> list[Result]:
    """Do work on each pipeline, report those that fail, and return the results of the others.

    Raises:
        Exception: all of them fail, or nothing more is wanted, and it is the error of the last one; or a
            defect.
    """
    results: list[Result] = []
    for number, item in enumerate(pipelines, start=1):
        try:
            results.append(work(item))
        except Exception as error:
            known_error = expected_error(error)
            # A signal may be the cause of the error, and decides what is reported.
            if known_error is None or not goes_on() or (number == len(pipelines) and not results):
                raise
            print_error(known_error)
    return results


def run_on_each(
    all_settings: "Sequence[PipelineSettings]",
    pipelines: "Sequence[Pipeline]",
    run: "Callable[[Pipeline, SparkSession, Callable[[], bool]], Result]",
) -> list[Result]:
    """Run work on pipelines, one after the other in one process, and return its results.

    A pipeline that fails is reported, and has no result.

    Args:
        all_settings: settings of all pipelines that the command covers.
        pipelines: those of them to work on.
        run: the work; the function in its last argument returns whether to continue.

    Raises:
        CdcError: the work fails on all pipelines.
        SystemExit: a signal has stopped the work.
    """
    from cdc_platform.resources import SPARK_IS_QUIET
    from cdc_platform.spark.session.running_tasks import watch_tasks

    sessions: list[tuple[LakeSettings, SparkSession, TaskCounter]] = []

    def session_of(pipeline: "Pipeline") -> "tuple[SparkSession, TaskCounter]":
        for lake, session, count_tasks in sessions:
            if lake == pipeline.settings.lake:
                return session, count_tasks
        session = start_spark(pipeline.settings)
        sessions.append((pipeline.settings.lake, session, watch_tasks(session)))
        return sessions[-1][1:]

    with stop_signals(SPARK_IS_QUIET.set) as stop:
        # Before the loop: if Spark does not start, it starts for no pipeline.
        if pipelines:
            session_of(pipelines[0])

        def run_on(pipeline: "Pipeline") -> Result:
            if not stop.is_not_asked():
                sys.exit(stop.exit_code)
            session, pipeline.progress.count_tasks = session_of(pipeline)
            print_name(pipeline.name, all_settings)
            return run(pipeline, session, stop.is_not_asked)

        results = try_each(pipelines, run_on, stop.is_not_asked)
    if not stop.is_not_asked():
        sys.exit(stop.exit_code)
    return results
