"""`cdc-platform status`: the state of pipelines."""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Group, RenderableType

from cdc_platform.commands.error_texts import error_text, expected_error
from cdc_platform.commands.options import DEFS, EVERY_NAME, LATE_AFTER_S, CommandOnDefs, FiniteRange, examples
from cdc_platform.commands.pipelines import open_existing_of
from cdc_platform.model.base.quantities import as_age, as_count, as_duration, as_number
from cdc_platform.model.base.timestamps import clock_micros, to_rfc3339
from cdc_platform.printing.lines import print_text
from cdc_platform.printing.progress_display import at_rest, shown_step
from cdc_platform.printing.tables import Cell, make_grid, make_line, make_table, open_live, print_rendered
from cdc_platform.stopping import interruption

if TYPE_CHECKING:
    from cdc_platform.pipeline.on_demand.status import Status
    from cdc_platform.pipeline.opened.pipeline import Pipeline
    from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings

SHOWN_FILES: Final = 20
SHOWN_CHECKS: Final = 3
WATCHED_EVERY_S: Final = 2.0
PRECISE_BELOW_S: Final = 60
WATCHED_PARTITIONS: Final = 5
"""Maximum number of live partitions that --watch names."""

Row = tuple[Cell, Cell]


@dataclass(frozen=True)
class UnreadableStatus:
    """Pipeline whose state cannot be read, and the error."""

    pipeline: str
    error: str

    def to_dict(self) -> dict[str, Any]:
        """Return the pipeline and its error as plain values."""
        return {"pipeline": self.pipeline, "error": self.error}

    def rows(self) -> list[Row]:
        """Return the pipeline and its error for people."""
        return [("pipeline", self.pipeline), ("", (f"cannot be read: {self.error}", "red"))]


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
@click.option("--watch", is_flag=True, help="Refresh until Ctrl-C, then exit with 0.")
@click.option(
    "--every",
    "every_s",
    type=FiniteRange(min=0.1),
    metavar="S",
    default=WATCHED_EVERY_S,
    show_default=True,
    help="Refresh interval of --watch, in seconds.",
)
def status(defs: Path, name: str | None, *, as_json: bool, watch: bool, every_s: float) -> None:
    """Show lag, tables, checks and quarantine of the pipelines.

    The command reads only the lake's metadata: no Spark is started, and the source may be down. The lag is
    this machine's clock minus the position of the newest cut; for files and topics, the age of what the
    newest cycle has left, or else `silence`, the time since they last had something to read.

    The exit code is 1 if one of the pipelines has never run, or it or a part of it cannot be read.
    """
    from cdc_platform.components.loading import load_each

    all_settings = load_each(defs, name)
    if watch:
        _watch(all_settings, every_s, as_json=as_json)
        return
    pipelines = [pipeline.as_reader() for pipeline in open_existing_of(all_settings)]
    with shown_step("look at the lakes"):
        statuses = [_read(pipeline) for pipeline in pipelines]
    if as_json:
        print_text(_to_json(statuses, indent=2))
    else:
        print_rendered(describe_statuses(statuses))
    is_damaged = any(isinstance(facts, UnreadableStatus) or facts.unreadable for facts in statuses)
    if is_damaged or len(pipelines) < len(all_settings):
        sys.exit(1)


def _watch(all_settings: "Sequence[PipelineSettings]", every_s: float, *, as_json: bool) -> None:
    """Show the pipelines until a signal: in place on a terminal, else one block or array after another."""
    is_over = interruption()
    readers: dict[str, Pipeline] = {}
    statuses = [_read_again(settings, readers) for settings in all_settings]
    live = None if as_json else open_live()
    # Nothing else is drawn below a live display, from its start to its end.
    with at_rest() if live is not None else nullcontext(), live or nullcontext():
        while not is_over.is_set():
            view = Group(
                make_line(to_rfc3339(clock_micros()), "dim"),
                describe_statuses(statuses, max_partitions=WATCHED_PARTITIONS),
            )
            if as_json:
                print_text(_to_json(statuses))
            elif live is not None:
                live.update(view, refresh=True)
            else:
                print_rendered(view, make_line())
            with at_rest():
                if is_over.wait(every_s):
                    return
            statuses = [_read_again(settings, readers) for settings in all_settings]


def _read(pipeline: "Pipeline") -> "Status | UnreadableStatus":
    """Return the state of a pipeline, or its error, so that the other pipelines are still shown."""
    from cdc_platform.pipeline.on_demand.status import read_status

    try:
        return read_status(pipeline)
    except Exception as error:
        if expected_error(error) is None:
            raise
        return UnreadableStatus(pipeline.name, error_text(error))


def _read_again(settings: "PipelineSettings", readers: "dict[str, Pipeline]") -> "Status | UnreadableStatus":
    """Return the state of a watched pipeline, which is opened once it has run.

    Unexpected errors do not hide other pipelines, either: they may be over at the next refresh.
    """
    from cdc_platform.pipeline.on_demand.status import read_status
    from cdc_platform.pipeline.opened.pipeline import open_existing

    try:
        if settings.name not in readers:
            readers[settings.name] = open_existing(settings).as_reader()
        pipeline = readers[settings.name]
        pipeline.forget_tables()
        return read_status(pipeline)
    except Exception as error:  # noqa: BLE001  shown in place of the pipeline
        return UnreadableStatus(settings.name, error_text(error))


def _to_json(statuses: "Sequence[Status | UnreadableStatus]", indent: int | None = None) -> str:
    return json.dumps([status.to_dict() for status in statuses], indent=indent)


def describe_statuses(
    statuses: "Sequence[Status | UnreadableStatus]", *, max_partitions: int | None = None
) -> Group:
    """Return the states of pipelines, one below the other.

    Args:
        statuses: the states.
        max_partitions: maximum number of partitions to name, below the tables; None names all, above them.
    """
    parts: list[RenderableType] = []
    for status in statuses:
        if isinstance(status, UnreadableStatus):
            body: RenderableType = make_grid(status.rows())
        elif max_partitions is None:
            body = describe_status(status)
        else:
            body = describe_watched(status, max_partitions)
        parts += [make_line(), body]
    return Group(*parts[1:])


def describe_status(status: "Status") -> Group:
    """Return a status as a table."""
    return Group(make_grid([row for rows in _rows(status) for row in rows]), *_describe_tables(status))


def describe_watched(status: "Status", max_partitions: int) -> Group:
    """Return a status with the most important rows first, for terminals with few lines."""
    position, partitions, cut, notes = _rows(status, max_partitions)
    upper, lower = make_grid([*position, *cut]), make_grid([*partitions, *notes])
    return Group(upper, *_describe_tables(status), make_line(), lower)


def _rows(
    status: "Status", max_partitions: int | None = None
) -> tuple[list[Row], list[Row], list[Row], list[Row]]:
    """Return rows for the position, the partitions, the cut, and the notes."""
    fields = status.to_dict()
    position: list[Row] = [
        ("pipeline", f"{status.pipeline}, {f'cycle {status.cycle}' if status.has_begun else 'no cycle yet'}"),
        ("watermark", fields["watermark"] or _missing(status, "partitions", "none yet")),
        _describe_lag(status),
    ]
    cut = f"{fields['cut']} at {fields['cut_position']}" if fields["cut"] is not None else None
    open_records = f"{status.quarantined} open" if status.quarantined is not None else "unknown"
    cut_rows: list[Row] = [
        ("cut", cut or _missing(status, "cut", "none yet")),
        *_check_rows(status),
        ("quarantine", (open_records, "yellow" if status.quarantined else "")),
        *([("replay", status.replay.describe())] if status.replay is not None else []),
    ]
    notes: list[Row] = [
        *(("unreadable", (f"{part}: {error}", "red")) for part, error in status.unreadable.items()),
        *([("unread", f"{len(status.unread_files)} files")] if status.unread_files else []),
        *(("", file.describe()) for file in status.unread_files[:SHOWN_FILES]),
        *(("notes" if number == 0 else "", finding) for number, finding in enumerate(status.findings)),
    ]
    return position, _partition_rows(status, max_partitions), cut_rows, notes


def _check_rows(status: "Status") -> list[Row]:
    """Return how many checks passed when they last ran, and what the others said then, failures first."""
    failures = [check for check in status.checks if check.has_failed]
    warnings = [check for check in status.checks if not check.passed and not check.has_failed]
    if not status.checks:
        return [("checks", _missing(status, "checks", "none run yet"))]
    now_s = time.time()
    counts = [
        *([f"{len(failures)} failed"] if failures else []),
        f"{len(status.checks) - len(failures) - len(warnings)} passed",
        *([as_count(len(warnings), "warning")] if warnings else []),
        f"last {as_age(now_s - max(check.at_s for check in status.checks))}",
    ]
    texts = [
        (check.describe(now_s), "red" if check.has_failed else "yellow") for check in (*failures, *warnings)
    ]
    return [
        ("checks", (", ".join(counts), "red" if failures else "yellow" if warnings else "")),
        *(("", text) for text in texts[:SHOWN_CHECKS]),
        *([("", f"and {len(texts) - SHOWN_CHECKS} more")] if len(texts) > SHOWN_CHECKS else []),
    ]


def _missing(status: "Status", part: str, nothing: str) -> str:
    """Return the text for a part without a value, which is unknown where the lake is damaged."""
    return "unknown" if part in status.unreadable else nothing


def _partition_rows(status: "Status", max_partitions: int | None) -> list[Row]:
    live = status.live_partitions
    left_out = len(live) - len(live[:max_partitions])
    counts = f"{len(live)} live, {len(status.waiting_partitions)} waiting, "
    return [
        ("partitions", _missing(status, "partitions", f"{counts}{status.finished_partitions} finished")),
        *(("", key) for key in live[:max_partitions]),
        *([("", f"and {left_out} more")] if left_out else []),
        *(("", (partition.describe(), "yellow")) for partition in status.stuck_partitions),
    ]


def _describe_lag(status: "Status") -> tuple[str, Cell]:
    if status.lag_s is None:
        return "lag", "-"
    duration = f"{status.lag_s} s" if status.lag_s < PRECISE_BELOW_S else as_duration(status.lag_s)
    if status.is_silence:
        polled_s = time.time() - (status.polled_micros or 0) / 1e6
        text = f"{duration} since the source last had something to read; polled {as_age(polled_s)}"
        return "silence", (text, "yellow" if polled_s > LATE_AFTER_S else "")
    rest = "the source: the newest cycle has read only a part of what waits"
    behind = "the clock of this machine" if status.left_since_micros is None else rest
    return "lag", (f"{duration} behind {behind}", "yellow" if status.lag_s > LATE_AFTER_S else "green")


def _describe_tables(status: "Status") -> Iterator[RenderableType]:
    if status.tables:
        yield make_line()
        yield make_table(
            ("table", "rows", "snapshot"),
            [
                (name, "-" if table.rows is None else table.rows, str(table.snapshot_id or "-"))
                for name, table in status.tables.items()
            ],
        )
    if status.copies:
        yield make_line()
        yield make_table(
            ("copy", "rows", "chunks", "of", "rows/s", "left", "as of"),
            [
                (
                    *(name, copy.copied_rows, copy.copied_chunks, copy.chunks),
                    as_number(copy.rows_per_s) if copy.rows_per_s is not None else "-",
                    as_duration(copy.left_s) if copy.left_s is not None else "-",
                    to_rfc3339(copy.position_micros),
                )
                for name, copy in status.copies.items()
            ],
        )
