"""Shared parts of the commands: DEFS and `--name`, numbers, examples in their help, a Spark session.

DEFS is a file or a folder; the environment variable `CDC_PLATFORM_DEFS` stands in for it. Either may declare
several pipelines. `sync` and the commands that report (`status`, `check`, `cuts`,
`quarantine list`) cover all of them; commands that act on one pipeline, or report on one item of it, need
`--name`.
Every command validates all settings before it does anything.
"""

import math
import os
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cdc_platform.components.places import PLACE_VARIABLE
from cdc_platform.errors import CdcError, SettingError
from cdc_platform.lake.catalog.damage import find_damage, find_full
from cdc_platform.printing.lines import print_line, print_text
from cdc_platform.printing.progress_display import shown_step
from cdc_platform.spark.session.session_failures import find_session_failure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_platform.pipeline.opened.pipeline import Pipeline
    from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings


class Place(click.Path):
    """An existing file or folder."""

    def get_missing_message(self, *_: object, **__: object) -> str:
        """Return what to do if it is missing."""
        return f"Name a file or a folder with pipelines, or set {PLACE_VARIABLE}."


DEFS = click.argument("defs", type=Place(exists=True, path_type=Path))
NAME = click.option("--name", help="Pipeline to use; required if DEFS declares several.")
EVERY_NAME = click.option("--name", help="Use only this pipeline of DEFS.")
LATE_AFTER_S: Final = 300
"""Lag in seconds after which a pipeline counts as late, unless the status page has another limit."""
OWN_SETTINGS: Final = frozenset({"table_format_version"})
"""Settings of `lake` and `spark` that may differ between pipelines in one process."""


class CommandOnDefs(click.Command):
    """A command whose first argument is DEFS, which may come from the environment."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert DEFS from the environment if one argument is missing."""
        place = os.environ.get(PLACE_VARIABLE)
        if place:
            params, _, _ = self.make_parser(ctx).parse_args([*args])
            last = [param.name for param in self.params if isinstance(param, click.Argument)][-1]
            value = params.get(last or "")
            if not isinstance(value, str | tuple) or not value:
                args = [place, *args]
        return super().parse_args(ctx, args)


class FiniteRange(click.FloatRange):
    """A range of finite numbers, without `nan` and `inf`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number, or fail with the name of the option."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


def examples(*lines: str) -> str:
    """Return the examples at the end of a command's help."""
    # The control character keeps click from making one paragraph of the lines.
    return "\n".join(("\b", "Examples:", *(f"  cdc-platform {line}" for line in lines)))


def interruption() -> threading.Event:
    """Return an event that Ctrl-C or SIGTERM sets, for commands that run until interrupted."""
    is_over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: is_over.set())
    return is_over


def start_spark(settings: "PipelineSettings") -> "SparkSession":
    """Start the session, and report slow steps: the first start downloads Spark's packages."""
    from cdc_platform.resources import spark_session

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
    """Return the settings of pipelines that share the Spark session and the lake of one process.

    The session gets the packages of all pipelines, because a source may add its own.

    Raises:
        SettingError: two of them have different settings for `lake` or `spark`.
    """
    packages = tuple(dict.fromkeys(name for settings in all_settings for name in settings.spark.packages))
    shared = [replace(each, spark=replace(each.spark, packages=packages)) for each in all_settings]
    first = shared[0]
    for other in shared[1:]:
        if differing := _differing(first, other):
            raise SettingError(
                f"{defs}: {', '.join(differing)}",
                f"differs between `{first.name}` and `{other.name}`, but one process has one Spark session "
                "with one lake; nothing was run. Give them the same settings, or choose one with `--name`",
            )
    return shared


def _differing(first: "PipelineSettings", other: "PipelineSettings") -> list[str]:
    """Return the paths of the settings that keep two pipelines from sharing a process."""
    return [
        f"{part}.{name}"
        for part, mine, theirs in (("lake", first.lake, other.lake), ("spark", first.spark, other.spark))
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

    pipelines, missing = [], []
    for settings in all_settings:
        try:
            pipelines.append(open_existing(settings))
        except CdcError as error:
            missing.append(error)
    for reason in missing if pipelines else missing[:-1]:
        print_text(f"{type(reason).__name__}: {reason}", "red", err=True)
    if not pipelines:
        raise missing[-1]
    return pipelines


def write_file(option: str, path: Path, text: str) -> None:
    """Write the file of an option, and create its folders.

    Raises:
        SettingError: the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SettingError(option, f"names a file that cannot be written: {error}") from error


def expected_error(error: Exception) -> CdcError | None:
    """Return an error whose message is all that a user needs; None for an error that needs its traceback."""
    if isinstance(error, CdcError):
        return error
    return find_full(error) or find_damage(error) or find_session_failure(error)


def error_text(error: Exception) -> str:
    """Return the kind of an error and its message; of a foreign one the first line: it may have a stack."""
    expected = expected_error(error)
    text = str(expected) if expected is not None else next(iter(str(error).splitlines()), "")
    return f"{type(expected or error).__name__}: {text}"
