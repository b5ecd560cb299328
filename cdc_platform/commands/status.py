"""`cdc-platform status`: where a pipeline stands."""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from rich.console import Group, RenderableType

from cdc_platform.commands.common import (
    DEFS,
    EVERY_NAME,
    LATE_AFTER_S,
    CommandOnDefs,
    FiniteRange,
    examples,
    interruption,
    open_existing_of,
)
from cdc_platform.model.base.timestamps import to_rfc3339
from cdc_platform.printing.lines import print_text
from cdc_platform.printing.tables import Cell, make_grid, make_line, make_table, open_live, print_rendered

if TYPE_CHECKING:
    from cdc_platform.pipeline.on_demand.status import Status
    from cdc_platform.pipeline.opened.pipeline import Pipeline

SHOWN_FILES: Final = 20
WATCHED_EVERY_S: Final = 2.0


@click.command(
    cls=CommandOnDefs,
    epilog=examples(
        "status examples/my_bank/defs.yaml",
        "status examples/my_bank/defs.yaml --watch",
        "status examples/my_bank/defs.yaml --json",
    ),
)
@DEFS
@EVERY_NAME
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array of the pipelines, for scripts.")
@click.option("--watch", is_flag=True, help="Show it again and again, until Ctrl-C, which exits with 0.")
@click.option(
    "--every",
    "every_s",
    type=FiniteRange(min=0.1),
    metavar="S",
    default=WATCHED_EVERY_S,
    show_default=True,
    help="Seconds between two looks of --watch.",
)
def status(defs: Path, name: str | None, *, as_json: bool, watch: bool, every_s: float) -> None:
    """Show the state of the pipelines in DEFS: watermark, partitions, tables, newest cut, quarantine.

    It reads only the lake's metadata: no Spark is started, and the source may be down. The lag is therefore
    this machine's clock minus the watermark; for files and topics, `silence` is the time since they last had
    something to read.

    The exit code is 1 if one of the pipelines has never run.
    """
    from cdc_platform.components.loading import load_each

    chosen = load_each(defs, name)
    pipelines = open_existing_of(chosen)
    if watch:
        _watch(pipelines, every_s, as_json=as_json)
    else:
        statuses = _read(pipelines)
        if as_json:
            print_text(_to_json(statuses, indent=2))
        else:
            print_rendered(describe_statuses(statuses))
    if len(pipelines) < len(chosen):
        sys.exit(1)


def _watch(pipelines: "Sequence[Pipeline]", every_s: float, *, as_json: bool) -> None:
    """Show the pipelines until a signal: in place on a terminal, else one block or array after another."""
    is_over = interruption()
    live = None if as_json else open_live()
    with live or nullcontext():
        while not is_over.is_set():
            statuses = _read(pipelines)
            shown = Group(make_line(_clock(), "dim"), describe_statuses(statuses))
            if as_json:
                print_text(_to_json(statuses))
            elif live is not None:
                live.update(shown, refresh=True)
            else:
                print_rendered(shown, make_line())
            is_over.wait(every_s)


def _read(pipelines: "Sequence[Pipeline]") -> "list[Status]":
    from cdc_platform.pipeline.on_demand.status import read_status

    for pipeline in pipelines:
        pipeline.forget_tables()
    return [read_status(pipeline) for pipeline in pipelines]


def _to_json(statuses: "Sequence[Status]", indent: int | None = None) -> str:
    return json.dumps([status.to_dict() for status in statuses], indent=indent)


def _clock() -> str:
    return to_rfc3339(time.time_ns() // 1000)


def describe_statuses(statuses: "Sequence[Status]") -> Group:
    """Return the states of pipelines, below each other."""
    parts = [part for status in statuses for part in (make_line(), describe_status(status))]
    return Group(*parts[1:])


def describe_status(status: "Status") -> Group:
    """Return a status for people."""
    fields = status.to_dict()
    cut = f"{fields['cut']} at {fields['cut_position']}" if fields["cut"] is not None else "none yet"
    partitions = (
        f"{len(status.live_partitions)} live, {len(status.waiting_partitions)} waiting, "
        f"{status.finished_partitions} finished"
    )
    rows: list[tuple[Cell, Cell]] = [
        ("pipeline", f"{status.pipeline}, {f'cycle {status.cycle}' if status.has_begun else 'no cycle yet'}"),
        ("watermark", fields["watermark"] or "none yet"),
        _describe_lag(status),
        ("partitions", partitions),
        *(("", key) for key in status.live_partitions),
        *(("", (stuck.describe(), "yellow")) for stuck in status.stuck_partitions),
        ("cut", cut),
        ("quarantine", (f"{status.quarantined} open", "yellow" if status.quarantined else "")),
        *([("unread", f"{len(status.unread_files)} files")] if status.unread_files else []),
        *(("", file.describe()) for file in status.unread_files[:SHOWN_FILES]),
        *(("notes" if number == 0 else "", finding) for number, finding in enumerate(status.findings)),
    ]
    return Group(make_grid(rows), *_describe_tables(status))


def _describe_lag(status: "Status") -> tuple[str, Cell]:
    if status.lag_s is None:
        return "lag", "-"
    if status.is_silence:
        return "silence", f"{status.lag_s} s since the source last had something to read"
    style = "yellow" if status.lag_s > LATE_AFTER_S else "green"
    return "lag", (f"{status.lag_s} s behind the clock of this machine", style)


def _describe_tables(status: "Status") -> Iterator[RenderableType]:
    if status.tables:
        yield make_line()
        yield make_table(
            ("table", "rows", "snapshot"),
            [
                (name, table.rows if table.rows is not None else "-", str(table.snapshot_id or "-"))
                for name, table in status.tables.items()
            ],
        )
    if status.copies:
        yield make_line()
        yield make_table(
            ("copy", "rows", "chunks", "of", "as of"),
            [
                (name, copy.copied_rows, copy.copied_chunks, copy.chunks, to_rfc3339(copy.position_micros))
                for name, copy in status.copies.items()
            ],
        )
