"""Arguments and options that commands share, and the examples in their help.

DEFS is a file or a folder; the environment variable `CDC_PLATFORM_DEFS` stands in for it. Either may declare
several pipelines. `sync`, `maintain` and the commands that report (`status`, `check`, `cuts`,
`quarantine list`) cover all of them; commands that act on one pipeline, or report on one item of it, need
`--name`.
Every command validates all settings before it does anything.
"""

import math
import os
from pathlib import Path
from typing import Any, Final

import click

from cdc_platform.components.places import PLACE_VARIABLE
from cdc_platform.errors import SettingError


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
