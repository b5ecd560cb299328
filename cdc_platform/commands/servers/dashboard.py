"""`cdc-platform dashboard`: the status page of pipelines, and their metrics."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from cdc_platform.commands.options import (
    LATE_AFTER_S,
    CommandOnDefs,
    FiniteRange,
    Place,
    examples,
    write_file,
)
from cdc_platform.printing.lines import print_line
from cdc_platform.printing.progress_display import at_rest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdc_platform.dashboard.watch import Watch

PORT: Final = 3030
REFRESH_S: Final = 10
OPEN_TO_OTHERS: Final = "Anyone who reaches this address can read the page: it has no login."
DAGSTER_URL: Final = "CDC_PLATFORM_DAGSTER_URL"
"""Environment variable with the address of Dagster's UI, which the page links to."""


@click.command(
    cls=CommandOnDefs,
    epilog=examples(
        "dashboard examples/my_bank/defs.yaml",
        "dashboard examples/my_bank/defs.yaml examples/datastream/defs.yaml --port 8080",
        "dashboard examples/my_bank/defs.yaml --html status.html",
    ),
)
@click.argument("defs", nargs=-1, required=True, type=Place(exists=True, path_type=Path))
@click.option(
    "--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="Port; 0: a free one."
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on. Anyone who can reach an address other than loopback sees the page.",
)
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the page as one file that works offline, and serve nothing.",
)
@click.option(
    "--hours",
    type=FiniteRange(min=0.01, max=24 * 366),
    default=24,
    show_default=True,
    help="Hours of history.",
)
@click.option(
    "--late-after",
    type=FiniteRange(min=0),
    default=LATE_AFTER_S,
    show_default=True,
    help="Lag in seconds after which a change stream is late, and silence after which files and topics "
    "may be late.",
)
def dashboard(
    defs: tuple[Path, ...], port: int, host: str, html: Path | None, hours: float, late_after: float
) -> None:
    """Serve a status page of the pipelines in DEFS.

    Each of DEFS is a file, or a folder with files of pipelines. The page shows lag, changes per second, the
    newest cut, quarantine, the last check results, tables and partitions, and refreshes by itself.
    `/metrics` has the numbers for Prometheus. Both are read from the lake, without Spark, and
    the source may be down.
    """
    from cdc_platform.dashboard.page import PageOptions
    from cdc_platform.dashboard.server import address_of, build_app, is_loopback, listen, serve

    watch = open_watch(defs, late_after)
    dagster_url = os.environ.get(DAGSTER_URL)
    if html is not None:
        write_file("--html", html, watch.page(PageOptions(hours, dagster_url=dagster_url)))
    else:
        listener = listen(host, port)
        address = address_of(listener)
        app = build_app(watch, host, PageOptions(hours, REFRESH_S, dagster_url))
        if not is_loopback(host):
            print_line((OPEN_TO_OTHERS, "yellow"), err=True)
        pages = f"Status page: {address}   metrics: {address}/metrics   (press Ctrl-C to stop)"
        with at_rest():
            serve(app, listener, lambda: print_line(pages))


def open_watch(defs: "Sequence[Path]", late_after_s: float) -> "Watch":
    """Return the pipelines of files and folders.

    Raises:
        SettingError: a file or one of its values is invalid, a place has no pipeline, or two pipelines
            have the same name.
    """
    from cdc_platform.components.loading import load_declared
    from cdc_platform.dashboard.facts import WatchedPipeline
    from cdc_platform.dashboard.watch import Watch

    pipelines = load_declared(defs)
    return Watch([WatchedPipeline.of(pipeline.settings(), late_after_s) for pipeline in pipelines.values()])
