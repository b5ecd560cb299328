"""The composition root: every pipeline that is declared becomes part of one code location."""

import os
from pathlib import Path
from typing import Final

import dagster as dg

from cdc_platform.components.loading import DeclaredPipeline, find_pipelines, load_declared
from cdc_platform.components.places import FILE_NAMES, PLACE_VARIABLE
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
    """Return all pipelines; a run works in one process, because each process would start Spark.

    The pipeline of the demo replaces an example of the same name.
    """
    pipelines: dict[str, dg.Definitions] = {}
    for place in find_places():
        definitions = _load_place(place)
        pipelines |= {name: _build(definitions[name]) for name in definitions if name not in pipelines}
    return dg.Definitions.merge(dg.Definitions(executor=dg.in_process_executor), *pipelines.values())


def _load_place(place: Path) -> dict[str, DeclaredPipeline]:
    """Return the pipelines of a place; those of the demo and of the examples may be empty or missing."""
    if find_pipelines(place):
        return load_declared([place])
    if PLACE_VARIABLE in os.environ:
        problem = (
            f"names no file that declares a pipeline, and no folder with one named "
            f"{' or '.join(FILE_NAMES)}: {place}"
        )
        raise SettingError(PLACE_VARIABLE, problem)
    return {}


def _build(pipeline: DeclaredPipeline) -> dg.Definitions:
    if pipeline.document.is_post_processed:
        problem = "would be ignored: only Dagster's own loading of a project applies it; remove it"
        raise SettingError(f"{pipeline.document.place}: post_processing", problem)
    return pipeline.definitions()
