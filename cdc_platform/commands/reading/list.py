"""`cdc-platform list`: the pipelines of a file or folder."""

import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from rich.table import Table

from cdc_platform.commands.error_texts import error_text, expected_error
from cdc_platform.commands.options import DEFS, CommandOnDefs, examples
from cdc_platform.model.base.quantities import as_age
from cdc_platform.model.base.timestamps import to_rfc3339
from cdc_platform.printing.lines import print_text
from cdc_platform.printing.progress_display import shown_step
from cdc_platform.printing.tables import Cell, make_table, print_rendered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings

HEADINGS: Final = ("pipeline", "source", "tables", "newest cut", "published", "lake")


@dataclass(frozen=True)
class ListedPipeline:
    """Summary of a pipeline; ``tables`` are those of its newest cut, ``published`` is its time, RFC 3339.

    ``error`` is the reason why its lake cannot be read, else None.
    """

    pipeline: str
    source: str
    tables: int | None
    cut: int | None
    published: str | None
    published_s: float | None
    lake: str
    error: str | None = None


@click.command(
    "list",
    cls=CommandOnDefs,
    epilog=examples("list examples", "list examples/my_bank/defs.yaml --json"),
)
@DEFS
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array of the pipelines, for scripts.")
def list_pipelines(defs: Path, *, as_json: bool) -> None:
    """List the pipelines in DEFS, each with its source and lake.

    It reads only the lake's metadata: no Spark is started, and the source may be down.

    The exit code is 1 if one of the lakes cannot be read.
    """
    from cdc_platform.components.loading import load_each

    with shown_step("look at the lakes"):
        pipelines = [list_pipeline(settings) for settings in load_each(defs)]
    if as_json:
        print_text(json.dumps([asdict(pipeline) for pipeline in pipelines], indent=2))
    else:
        print_rendered(describe_pipelines(pipelines))
    if any(pipeline.error is not None for pipeline in pipelines):
        sys.exit(1)


def list_pipeline(settings: "PipelineSettings") -> ListedPipeline:
    """Return the summary of a pipeline, without a cut if it has published none."""
    from cdc_platform.errors import PipelineNotFound
    from cdc_platform.lake.state.cuts import newest_cut
    from cdc_platform.pipeline.opened.pipeline import open_existing

    cut, problem = None, None
    try:
        cut = newest_cut(open_existing(settings).lake)
    except PipelineNotFound:
        pass
    except Exception as error:  # the other pipelines are still listed
        if expected_error(error) is None:
            raise
        problem = error_text(error)
    return ListedPipeline(
        pipeline=settings.name,
        source=type(settings.source).__name__.removesuffix("Settings"),
        tables=len(cut.tables) if cut is not None else None,
        cut=cut.cut if cut is not None else None,
        published=to_rfc3339(cut.published_micros) if cut is not None else None,
        published_s=round(time.time() - cut.published_micros / 1e6, 3) if cut is not None else None,
        lake=settings.lake.shown_path,
        error=problem,
    )


def describe_pipelines(pipelines: "Sequence[ListedPipeline]") -> Table:
    """Return a table of pipelines for people."""
    return make_table(
        HEADINGS,
        [
            (
                pipeline.pipeline,
                pipeline.source,
                pipeline.tables if pipeline.tables is not None else "-",
                _describe_cut(pipeline),
                as_age(pipeline.published_s) if pipeline.published_s is not None else "-",
                pipeline.lake,
            )
            for pipeline in pipelines
        ],
    )


def _describe_cut(pipeline: ListedPipeline) -> Cell:
    if pipeline.error is not None:
        return f"cannot be read: {pipeline.error}", "red"
    return str(pipeline.cut) if pipeline.cut is not None else "none yet"
