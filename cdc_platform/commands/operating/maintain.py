"""`cdc-platform maintain`: immediate compaction, expiry, and removal of files that killed runs left."""

import sys
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cdc_platform.commands.common import (
    DEFS,
    EVERY_NAME,
    CommandOnDefs,
    examples,
    open_existing_of,
    print_name,
    share_spark,
    start_spark,
)
from cdc_platform.printing.lines import print_text
from cdc_platform.printing.progress_display import show_progress
from cdc_platform.stopping import stop_signals

if TYPE_CHECKING:
    from cdc_platform.pipeline.publishing.maintain import MaintenanceOutcome


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
    from cdc_platform.pipeline.publishing.maintain import maintain_lake
    from cdc_platform.resources import SPARK_IS_QUIET
    from cdc_platform.spark.session.running_tasks import watch_tasks

    all_settings = share_spark(defs, load_each(defs, name))
    pipelines = open_existing_of(all_settings)
    with stop_signals(SPARK_IS_QUIET.set) as stop:
        session = start_spark(all_settings[0])
        count_tasks = watch_tasks(session)
        for pipeline in takewhile(lambda _: stop.is_not_asked(), pipelines):
            pipeline.progress.count_tasks = count_tasks
            print_name(pipeline.name, all_settings)
            with show_progress(pipeline.progress):
                outcome = maintain_lake(pipeline, session, thorough=True)
            print_text(describe_outcome(outcome))
    if not stop.is_not_asked():
        sys.exit(stop.exit_code)
    sys.exit(0 if len(pipelines) == len(all_settings) else 1)


def describe_outcome(outcome: "MaintenanceOutcome") -> str:
    """Return the output line of a maintenance."""
    return (
        f"files rewritten {outcome.minor_files + outcome.major_files}  files deleted {outcome.expired_files}"
    )
