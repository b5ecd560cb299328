"""`cdc-platform quarantine`: records that could not enter the log, and their replay."""

import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Group, RenderableType

from cdc_platform.commands.options import DEFS, EVERY_NAME, NAME, CommandOnDefs, examples
from cdc_platform.commands.pipelines import open_existing_of, print_name
from cdc_platform.model.base.quantities import as_count
from cdc_platform.model.base.timestamps import to_rfc3339
from cdc_platform.model.stream.quarantined_records import QuarantineFilter
from cdc_platform.printing.lines import join_lines, print_text
from cdc_platform.printing.progress_display import show_progress, shown_step
from cdc_platform.printing.tables import Cell, make_grid, make_line, make_table, print_rendered

if TYPE_CHECKING:
    from cdc_platform.model.stream.quarantined_records import QuarantinedRecord
    from cdc_platform.pipeline.on_demand.replay import ReplayOutcome

SHOWN: Final = 50
REASON_LENGTH: Final = 100

_AS_JSON: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")


def _with_filter_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that select records to a command, as its parameter `record_filter`."""

    @wraps(command)
    def with_filter(table: str | None, reason: str | None, cycle: int | None, **options: Any) -> None:
        command(record_filter=QuarantineFilter(table, reason, cycle), **options)

    options = (
        click.option("--cycle", "cycle", type=int, metavar="N", help="Only records that cycle N put there."),
        click.option("--reason", metavar="TEXT", help="Only records whose reason contains TEXT."),
        click.option("--table", metavar="TABLE", help="Only records of the source table TABLE."),
    )
    return reduce(lambda narrowed, option: option(narrowed), options, with_filter)


@click.group(
    epilog=examples(
        "quarantine list examples/my_bank/defs.yaml --table accounts",
        "quarantine show examples/my_bank/defs.yaml RECORD",
        "quarantine replay examples/my_bank/defs.yaml --reason 'ordering key'",
    )
)
def quarantine() -> None:
    """List, show and replay records that could not enter the log.

    None of this starts Spark.
    """


@quarantine.command("list", cls=CommandOnDefs)
@DEFS
@EVERY_NAME
@_with_filter_options
@click.option("--all", "shows_all", is_flag=True, help="Also list replayed records.")
@_AS_JSON
def list_records(
    defs: Path, name: str | None, record_filter: QuarantineFilter, *, shows_all: bool, as_json: bool
) -> None:
    """List the records in quarantine, oldest first.

    JSON has all their fields except the content.
    """
    from cdc_platform.components.loading import load_each
    from cdc_platform.lake.state.quarantine import load_quarantine

    all_settings, rows = load_each(defs, name), []
    pipelines = open_existing_of(all_settings)
    for pipeline in pipelines:
        with shown_step("look at quarantine"):
            records = load_quarantine(pipeline.lake, with_replayed=shows_all)
        matching = [record for record in records if record_filter.matches(record)]
        rows += [{"pipeline": pipeline.name, **as_dict(record)} for record in matching]
        if not as_json:
            print_name(pipeline.name, all_settings)
            print_rendered(describe_quarantined_records(matching))
    if as_json:
        print_text(json.dumps(rows, indent=2))
    if len(pipelines) < len(all_settings):
        sys.exit(1)


@quarantine.command(cls=CommandOnDefs)
@DEFS
@click.argument("record")
@NAME
@_AS_JSON
def show(defs: Path, record: str, name: str | None, as_json: bool) -> None:
    """Print a record in quarantine as it arrived.

    RECORD is the record's identity, as printed by `list`. A reason is printed for each
    time that it was quarantined.
    """
    from cdc_platform.errors import QuarantinedRecordNotFound
    from cdc_platform.lake.state.quarantine import load_quarantine

    record_filter = QuarantineFilter(record=record)
    records = load_quarantine(_open(defs, name).lake, with_replayed=True)
    matches = [entry for entry in records if record_filter.matches(entry)]
    if not matches:
        raise QuarantinedRecordNotFound(
            f"No record {record!r} is in quarantine; `cdc-platform quarantine list {defs}` lists them."
        )
    objects = [{**as_dict(entry), "record": _parse(entry.record)} for entry in matches]
    if as_json:
        print_text(json.dumps(objects, indent=2, ensure_ascii=False))
    else:
        print_rendered(_describe_whole(objects))


@quarantine.command(cls=CommandOnDefs)
@DEFS
@NAME
@_with_filter_options
@click.option("--record", metavar="RECORD", help="Only this record, and those replayed with it.")
@_AS_JSON
def replay(
    defs: Path, name: str | None, record_filter: QuarantineFilter, *, record: str | None, as_json: bool
) -> None:
    """Replay all records, or those chosen, in the next cycle.

    Files are read again as a whole, so all quarantined records of a file are replayed together; events that
    the log already has are recognised. If a file no longer exists, and for topics, the stored text of each
    event is enough. If the log is in order (Spanner, Debezium), the affected tables are rebuilt from it.

    A record that is now valid enters the log at its own place in the source's order, so it overrides
    nothing newer. A record that is still invalid returns to quarantine with its new reason.
    """
    from cdc_platform.lake.state.quarantine import load_quarantine
    from cdc_platform.pipeline.on_demand.replay import ReplayOutcome, replay_records

    pipeline = _open(defs, name)
    with show_progress(pipeline.progress):
        outcome = replay_records(pipeline, replace(record_filter, record=record))
        count = len(load_quarantine(pipeline.lake)) if outcome == ReplayOutcome() else 0
    text = describe_replay(outcome, defs, count)
    print_text(json.dumps(_outcome_as_dict(outcome), indent=2) if as_json else text)


@shown_step("look at the lake")
def _open(defs: Path, name: str | None) -> Any:
    from cdc_platform.components.loading import load_settings
    from cdc_platform.pipeline.opened.pipeline import open_existing

    return open_existing(load_settings(defs, name))


def as_dict(record: "QuarantinedRecord") -> dict[str, Any]:
    """Return a record without its content as plain values; moments are RFC 3339 texts."""
    replay_micros = record.replayed_micros
    return {
        "record": record.name,
        "cycle": record.cycle,
        "table": record.table,
        "reason": record.reason,
        "moment": to_rfc3339(record.moment_micros),
        "transaction": record.transaction_id,
        "partition": record.partition_token,
        "origin": record.origin,
        "replayed": to_rfc3339(replay_micros) if replay_micros is not None else None,
        "replayed_from": record.replayed_from.value if record.replayed_from is not None else None,
    }


def describe_quarantined_records(records: "Sequence[QuarantinedRecord]") -> Group:
    """Return a table of records for people, and the number of records for each reason."""
    if not records:
        return Group(make_line("no record found in quarantine"))
    rows: list[Sequence[Cell]] = []
    for record in records[-SHOWN:]:
        state = ("open", "yellow") if record.is_open else "replayed"
        rows.append((str(record.cycle), state, record.table or "-", record.name))
        rows.append(("", "", "", (_short(record.reason), "dim")))
    counts = Counter(_short(record.reason) for record in records)
    more = f"and {len(records) - SHOWN} older ones; --json lists all"
    return Group(
        make_table(("cycle", "state", "table", "record and reason"), rows),
        *([make_line(more)] if len(records) > SHOWN else []),
        make_line(),
        make_grid([(number, reason) for reason, number in counts.most_common(SHOWN)]),
    )


def describe_replay(outcome: "ReplayOutcome", defs: Path, open_records: int) -> str:
    """Return what a replay has requested, for people; if nothing, how many records are still open."""
    lines = []
    if outcome.from_files:
        records, files = as_count(len(outcome.from_files), "record"), as_count(len(outcome.files), "file")
        lines.append(f"{records} of {files}: the next cycle reads the files again")
    if outcome.from_texts:
        records = as_count(len(outcome.from_texts), "record")
        lines.append(f"{records}: a later cycle decodes the stored text again")
    if outcome.from_records:
        lines.append(
            f"{as_count(len(outcome.from_records), 'record')}: the next cycle reads whole transactions again"
        )
    lines += [
        f"not replayed: {record.origin} is gone, and nothing of it was kept ({_short(record.reason)})"
        for record in outcome.unreadable
    ]
    if not lines and open_records:
        return (
            f"nothing to replay: the options match none of {as_count(open_records, 'open record')}, which "
            f"`cdc-platform quarantine list {defs}` shows"
        )
    if not lines:
        return "nothing to replay"
    if len(lines) > len(outcome.unreadable):
        lines.append(f"Run a cycle now: cdc-platform sync {defs}")
    return join_lines(lines)


def _outcome_as_dict(outcome: "ReplayOutcome") -> dict[str, Any]:
    return {
        "from_files": [record.name for record in outcome.from_files],
        "files": list(outcome.files),
        "from_records": [record.name for record in outcome.from_records],
        "from_texts": [record.name for record in outcome.from_texts],
        "unreadable": [record.name for record in outcome.unreadable],
    }


def _describe_whole(records: Sequence[dict[str, Any]]) -> Group:
    parts: list[RenderableType] = []
    for fields in records:
        fields_set = [
            (name, str(value)) for name, value in fields.items() if name != "record" and value is not None
        ]
        lines = json.dumps(fields["record"], indent=2, ensure_ascii=False).split("\n")
        parts += [make_line(), make_grid(fields_set), make_line(), *map(make_line, lines)]
    return Group(*parts[1:])


def _parse(record: str | None) -> Any:
    try:
        return json.loads(record) if record is not None else None
    except (ValueError, RecursionError):
        return record


def _short(reason: str) -> str:
    first = reason.splitlines()[0] if reason else ""
    return first if len(first) <= REASON_LENGTH else f"{first[: REASON_LENGTH - 3]}..."
