"""`cdc-platform maintain`: immediate compaction, expiry, and removal of files that killed runs left."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cdc_platform.commands.options import DEFS, EVERY_NAME, CommandOnDefs, examples
from cdc_platform.commands.pipelines import open_existing_of, run_on_each, share_spark
from cdc_platform.printing.lines import print_text
from cdc_platform.printing.progress_display import show_progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_platform.pipeline.opened.pipeline import Pipeline


@click.command(
    cls=CommandOnDefs,
    epilog=examples("maintain examples/my_bank/defs.yaml", "maintain examples --name shop"),
)
@DEFS
@EVERY_NAME
def maintain(defs: Path, name: str | None) -> None:
    """Maintain the tables of the pipelines in DEFS, due or not.

    Rewrites small files and files with deleted rows, expires old snapshots, and deletes the files of killed
    runs, which no metadata references. It changes no content, and every cut stays readable for as long as
    the settings specify.

    `sync` also runs due maintenance after its cycles, but does not search for the files of killed runs. Both
    may run at the same time. If both commit to one table, the second ends with CommitConflict; run it again.
    """
    from cdc_platform.components.loading import load_each

    all_settings = share_spark(defs, load_each(defs, name))
    pipelines = open_existing_of(all_settings)
    maintained_pipelines = run_on_each(all_settings, pipelines, _maintain)
    sys.exit(0 if len(maintained_pipelines) == len(all_settings) else 1)


def _maintain(pipeline: "Pipeline", spark: "SparkSession", _wants_more: Callable[[], bool]) -> None:
    from cdc_platform.pipeline.publishing.maintain import maintain_lake

    with show_progress(pipeline.progress):
        outcome = maintain_lake(pipeline, spark, thorough=True)
    rewritten = outcome.minor_files + outcome.major_files
    print_text(f"files rewritten {rewritten:,}  files deleted {outcome.expired_files:,}")
