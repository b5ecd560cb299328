"""Commands that run in the process of the test, and pipelines that they find."""

import shlex
from pathlib import Path
from typing import Final

import click
from click.testing import CliRunner

from cdc_platform.cli import main
from cdc_platform.components.loading import load_each
from cdc_platform.pipeline.opened.pipeline import open_pipeline

PROGRAM: Final = "cdc-platform "


def run(*arguments: str | Path) -> tuple[int, str, str]:
    """Run a command in this process; return its exit code, output and error output.

    What the command does not catch itself, of which users would see a traceback, is raised.
    """
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def begin(defs: Path, name: str | None = None) -> Path:
    """Make what each pipeline, or one, has in the lake before its first cycle, and return the file."""
    for settings in load_each(defs, name):
        _ = open_pipeline(settings).lake.catalog
    return defs


def parsed(line: str, *, is_whole: bool = True) -> click.Context:
    """Return the context of the command that a line starts, which may lack arguments if it is not whole."""
    name, *arguments = shlex.split(line.removeprefix(PROGRAM))
    return main.commands[name].make_context(name, arguments, resilient_parsing=not is_whole)
