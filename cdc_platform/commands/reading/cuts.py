"""`cdc-platform cuts`: the past cuts that can be read, and the pinned ones."""

import json
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import click
from rich.table import Table

from cdc_platform.commands.options import DEFS, EVERY_NAME, CommandOnDefs, examples
from cdc_platform.commands.pipelines import open_existing_of, print_name, start_spark
from cdc_platform.model.base.quantities import as_duration
from cdc_platform.model.base.timestamps import to_rfc3339
from cdc_platform.printing.lines import print_text
from cdc_platform.printing.progress_display import shown_step
from cdc_platform.printing.tables import Cell, make_line, make_table, print_rendered
from cdc_platform.stopping import stop_signals

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from cdc_platform.lake.state.cut_states import CutState
    from cdc_platform.lake.state.markers import Marker
    from cdc_platform.pipeline.opened.pipeline import Pipeline
    from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings

    MarkersOfCuts = Mapping[int, tuple[Marker, ...]]

SHOWN: Final = 20
HEADINGS: Final = ("cut", "position", "age", "tables", "readable", "pinned")
NO_MARKERS: "Final[MarkersOfCuts]" = MappingProxyType({})


@click.command(
    cls=CommandOnDefs,
    epilog=examples(
        "cuts examples/my_bank/defs.yaml",
        "cuts examples/my_bank/defs.yaml --pin 17",
        "cuts examples/my_bank/defs.yaml --unpin 17",
        "cuts examples/my_bank/defs.yaml --all --json",
    ),
)
@DEFS
@EVERY_NAME
@click.option("--pin", type=int, metavar="N", help="Keep cut N readable until it is unpinned.")
@click.option("--unpin", type=int, metavar="N", help="Let cut N expire like any other.")
@click.option("--all", "shows_all", is_flag=True, help=f"List all cuts; else the {SHOWN} newest ones.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def cuts(
    defs: Path, name: str | None, pin: int | None, unpin: int | None, shows_all: bool, as_json: bool
) -> None:
    """List the cuts of the pipelines in DEFS.

    A cut is a consistent snapshot of all tables of a pipeline. Every cut stays readable for
    `maintenance.keep_every_cut_s`, then fewer and fewer of them until `maintenance.keep_snapshots_s`. A
    pinned cut stays until it is unpinned: each of its tables gets the tag `cut_N`, which compaction and
    expiry keep. Pinned cuts are always listed, also if only some of their tables still have the tag.

    Under each cut are the messages of the source's log, if it delivers any, that are in it and not in the
    previous cut: each was written after all changes in the previous cut and before all other changes.

    Listing reads metadata only; pinning and unpinning start Spark, and need --name where DEFS declares
    several pipelines.
    """
    from cdc_platform.components.loading import load_each, load_settings
    from cdc_platform.lake.state.quarantine import describe_next_step

    if pin is not None and unpin is not None:
        raise click.UsageError("Choose one of --pin and --unpin.")
    if pin is not None:
        _pin(load_settings(defs, name), pin)
    if unpin is not None:
        _unpin(load_settings(defs, name), unpin)
    all_settings, rows = load_each(defs, name), []
    pipelines = open_existing_of(all_settings)
    for pipeline in pipelines:
        states, markers = _list(pipeline, shows_all=shows_all)
        rows += [{"pipeline": pipeline.name, **as_dict(state, markers)} for state in states]
        if not as_json:
            print_name(pipeline.name, all_settings)
            nothing = make_line(f"no cut yet; {describe_next_step(pipeline.lake)}")
            print_rendered(describe_cuts(states, markers=markers) if states else nothing)
    if as_json:
        print_text(json.dumps(rows, indent=2))
    if len(pipelines) < len(all_settings):
        sys.exit(1)


@shown_step("look at the cuts")
def _list(pipeline: "Pipeline", *, shows_all: bool) -> "tuple[Sequence[CutState], MarkersOfCuts]":
    from cdc_platform.lake.state.cut_states import cut_states
    from cdc_platform.lake.state.markers import list_markers, markers_of

    states = cut_states(pipeline.lake)
    # Only event sources have such messages.
    markers = list_markers(pipeline.lake) if pipeline.capabilities.delivers_events else ()
    of_cuts = markers_of(tuple(state.cut for state in states), markers)
    if not shows_all:
        states = (*(state for state in states[:-SHOWN] if state.tagged_tables), *states[-SHOWN:])
    return states, of_cuts


def _pin(settings: "PipelineSettings", number: int) -> None:
    from cdc_platform.lake.state.cut_states import cut_state, require_readable
    from cdc_platform.lake.state.cuts import find_cut
    from cdc_platform.lake.state.pins import pin_cut

    lake = open_existing_of([settings])[0].lake
    # An invalid number fails before Spark's slow start.
    if not require_readable(cut_state(lake, find_cut(lake, number))).is_pinned:
        with _quiet_spark(settings) as spark:
            pin_cut(lake, spark, number)


def _unpin(settings: "PipelineSettings", number: int) -> None:
    from cdc_platform.lake.state.cuts import find_cut
    from cdc_platform.lake.state.pins import unpin_cut

    lake = open_existing_of([settings])[0].lake
    find_cut(lake, number)
    with _quiet_spark(settings) as spark:
        unpin_cut(lake, spark, number)


@contextmanager
def _quiet_spark(settings: "PipelineSettings") -> "Iterator[SparkSession]":
    """Yield a session that prints nothing after Ctrl-C."""
    from cdc_platform.lake.catalog.access import reaching
    from cdc_platform.resources import SPARK_IS_QUIET

    with stop_signals(SPARK_IS_QUIET.set), reaching(settings.lake):
        session = start_spark(settings)
        with shown_step("change of the tables' tags"):
            yield session


def as_dict(state: "CutState", markers: "MarkersOfCuts" = NO_MARKERS) -> dict[str, Any]:
    """Return a cut, its state and its new markers as plain values; times are RFC 3339."""
    cut = state.cut
    return {
        "cut": cut.cut,
        "position": to_rfc3339(cut.position_micros),
        "published": to_rfc3339(cut.published_micros),
        "cycle": cut.cycle,
        "tables": dict(cut.tables),
        "readable": state.is_readable,
        "expired_tables": list(state.expired),
        "pinned": state.is_pinned,
        "pinned_tables": list(state.tagged_tables),
        "markers": [
            {"prefix": marker.prefix, "content": marker.content, "lsn": marker.lsn}
            for marker in markers.get(cut.cut, ())
        ],
    }


def describe_cuts(
    states: "Sequence[CutState]", now_s: float | None = None, markers: "MarkersOfCuts" = NO_MARKERS
) -> Table:
    """Return a table of cuts for people, oldest first, each with its new markers."""
    now_s = time.time() if now_s is None else now_s
    rows: list[Sequence[Cell]] = []
    for state in states:
        rows.append(_describe_cut(state, now_s))
        notes = (f"{marker.prefix}: {marker.content}" for marker in markers.get(state.cut.cut, ()))
        rows += [("", text, *[""] * (len(HEADINGS) - 2)) for text in notes]
    return make_table(HEADINGS, rows)


def _describe_cut(state: "CutState", now_s: float) -> "Sequence[Cell]":
    cut = state.cut
    return (
        str(cut.cut),
        to_rfc3339(cut.position_micros),
        as_duration(max(0.0, now_s - cut.published_micros / 1e6)),
        len(cut.tables),
        _yes(state.is_readable),
        "partly" if state.tagged_tables and not state.is_pinned else _yes(state.is_pinned),
    )


def _yes(value: bool) -> str:
    return "yes" if value else "no"
