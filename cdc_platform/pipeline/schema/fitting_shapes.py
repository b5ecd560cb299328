"""Events whose values enter the log unchecked, because their declared types show that they fit."""

from collections.abc import Iterable
from itertools import islice
from typing import Final

from cdc_platform.model.schema.observed_columns import declares_types_of
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.schema.key_shapes import Shape

MAX_FITTING: Final = 200
"""Maximum number of such shapes, each a condition of one query; the values of further shapes are checked."""


def fitting_shapes(pipeline: Pipeline, shapes: Iterable[Shape]) -> list[Shape]:
    """Return the shapes of events whose declared types guarantee that their values fit their tables.

    Args:
        pipeline: the pipeline.
        shapes: shapes of the events.
    """
    if not pipeline.capabilities.values_fit:
        return []
    tables = {table.name: table for table in pipeline.known_tables}
    fitting = (shape for shape in sorted(shapes) if declares_types_of(tables.get(shape[0]), shape[1]))
    return list(islice(fitting, MAX_FITTING))
