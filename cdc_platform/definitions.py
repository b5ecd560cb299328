"""The composition root: every pipeline that is declared becomes part of one code location."""

import os
from pathlib import Path
from typing import Final

import dagster as dg

from cdc_platform.components.loading import find_pipelines, load_definitions
from cdc_platform.errors import SettingError

PLACE_VARIABLE: Final = "CDC_PLATFORM_DEFS"
"""Environment variable that names a pipeline's YAML file, or a folder with such files."""

DEMO: Final = Path(".cdc_platform/defs.yaml")
"""The pipeline of a demo that was started in this folder."""
EXAMPLES: Final = Path(__file__).parents[1] / "examples"


def find_place() -> Path:
    """Return where the pipelines are declared: as told, else the demo's, else the examples."""
    told = os.environ.get(PLACE_VARIABLE)
    if told:
        return Path(told)
    return DEMO if DEMO.exists() else EXAMPLES


@dg.definitions
def defs() -> dg.Definitions:
    """Return all pipelines; they run in one process each, since a Spark session is shared within one only."""
    place = find_place()
    found = find_pipelines(place)
    if not found and PLACE_VARIABLE in os.environ:
        raise SettingError(PLACE_VARIABLE, f"names no file or folder that declares a pipeline: {place}")
    pipelines = [pipeline for path in found for pipeline in load_definitions(path)]
    return dg.Definitions.merge(dg.Definitions(executor=dg.in_process_executor), *pipelines)
