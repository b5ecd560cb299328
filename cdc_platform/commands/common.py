"""What the commands have in common: DEFS and `--name`, numbers, examples in their help, a Spark session."""

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cdc_platform.errors import CdcError
from cdc_platform.lake.damage import find_damage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_platform.pipeline.settings import PipelineSettings

DEFS = click.argument("defs", type=click.Path(exists=True, dir_okay=False, path_type=Path))
NAME = click.option("--name", help="Which pipeline, where DEFS declares several.")


class FiniteRange(click.FloatRange):
    """A range of numbers; `nan` and `inf` are in none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number, or fail with the name of the option."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


def examples(*lines: str) -> str:
    """Return the end of a command's help: how it is used."""
    # The control character keeps click from making one paragraph of the lines.
    return "\n".join(("\b", "Examples:", *(f"  cdc-platform {line}" for line in lines)))


def start_spark(settings: "PipelineSettings") -> "SparkSession":
    """Start the session, and say what takes long: the first start fetches Spark's packages."""
    from cdc_platform.resources import spark_session

    begun = time.monotonic()
    click.echo(f"Starting Spark ({settings.spark.address}) ...", err=True)

    def report(line: str) -> None:
        if "downloading http" in line.lower():
            click.echo(f"  {line.strip()}", err=True)

    session = spark_session(settings, report)
    click.echo(f"Spark is ready after {time.monotonic() - begun:.1f} s.", err=True)
    return session


def as_known(error: Exception) -> CdcError | None:
    """Return an error whose message is all that a user needs, None for one that needs a traceback."""
    return error if isinstance(error, CdcError) else find_damage(error)
