"""The composition root: every pipeline that is declared becomes part of one code location."""

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

import dagster as dg

from cdc_platform.components.loading import find_pipelines, load_definitions
from cdc_platform.components.places import PLACE_VARIABLE
from cdc_platform.errors import SettingError

DEMO: Final = Path(".cdc_platform/defs.yaml")
"""The pipeline of a demo that was started in this folder."""
EXAMPLES: Final = Path(__file__).parents[1] / "examples"


def find_places() -> tuple[Path, ...]:
    """Return where the pipelines are declared: as configured, else by the demo and in the examples."""
    variable = os.environ.get(PLACE_VARIABLE)
    if variable:
        return (Path(variable),)
    return (DEMO, EXAMPLES) if DEMO.exists() else (EXAMPLES,)


@dg.definitions
def defs() -> dg.Definitions:
    """Return all pipelines; they run in one process each, since a Spark session is shared within one only.

    The demo's takes the place of an example of the same name.
    """
    pipelines: dict[str, dg.Definitions] = {}
    for place in find_places():
        files = find_pipelines(place)
        if not files and PLACE_VARIABLE in os.environ:
            raise SettingError(PLACE_VARIABLE, f"names no file or folder that declares a pipeline: {place}")
        pipelines |= _load_place(files, pipelines.keys())
    return dg.Definitions.merge(dg.Definitions(executor=dg.in_process_executor), *pipelines.values())


def _load_place(files: Sequence[Path], names_in_use: Collection[str]) -> dict[str, dg.Definitions]:
    place_definitions: dict[str, dg.Definitions] = {}
    for path in files:
        for name, definitions in load_definitions(path, names_in_use).items():
            if name in place_definitions:
                raise SettingError(f"{path}: name", f"is that of a pipeline in another file: {name}")
            place_definitions[name] = definitions
    return place_definitions
