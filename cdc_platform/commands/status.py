"""`cdc-platform status`: where a pipeline stands."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from cdc_platform.commands.common import DEFS, EVERY_NAME, examples, open_existing_of
from cdc_platform.model.base.timestamps import to_rfc3339
from cdc_platform.printing import join_lines, print_text

if TYPE_CHECKING:
    from cdc_platform.pipeline.on_demand.status import Status, TableStatus

SHOWN_FILES: Final = 20


@click.command(
    epilog=examples("status examples/my_bank/defs.yaml", "status examples/my_bank/defs.yaml --json")
)
@DEFS
@EVERY_NAME
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array of the pipelines, for scripts.")
def status(defs: Path, name: str | None, as_json: bool) -> None:
    """Show the state of the pipelines in DEFS: watermark, partitions, tables, newest cut, quarantine.

    It reads only the lake's metadata: no Spark is started, and the source may be down. The lag is therefore
    this machine's clock minus the watermark; for files and topics, `silence` is the time since they last had
    something to read.

    The exit code is 1 if one of the pipelines has never run.
    """
    from cdc_platform.components.loading import load_each
    from cdc_platform.pipeline.on_demand.status import read_status

    chosen = load_each(defs, name)
    statuses = [read_status(pipeline) for pipeline in open_existing_of(chosen)]
    as_objects = [report.to_dict() for report in statuses]
    print_text(json.dumps(as_objects, indent=2) if as_json else "\n\n".join(map(describe_status, statuses)))
    if len(statuses) < len(chosen):
        sys.exit(1)


def describe_status(status: "Status") -> str:
    """Return a status as lines for people."""
    fields = status.to_dict()
    cut = f"{fields['cut']} at {fields['cut_position']}" if fields["cut"] is not None else "none yet"
    partitions = (
        f"partitions  {len(status.live_partitions)} live, {len(status.waiting_partitions)} waiting, "
        f"{status.finished_partitions} finished"
    )
    lines = [
        f"pipeline    {status.pipeline}, {f'cycle {status.cycle}' if status.has_begun else 'no cycle yet'}",
        f"watermark   {fields['watermark'] or 'none yet'}",
        _describe_lag(status),
        partitions,
        *(f"            {key}" for key in status.live_partitions),
        *(f"            {stuck.describe()}" for stuck in status.stuck_partitions),
        f"cut         {cut}",
        f"quarantine  {status.quarantined} open",
        *([f"unread      {len(status.unread_files)} files"] if status.unread_files else []),
        *(f"            {file.describe()}" for file in status.unread_files[:SHOWN_FILES]),
        "tables",
        *(_describe_table(name, table) for name, table in status.tables.items()),
        *(["notes"] if status.findings else []),
        *(f"            {finding}" for finding in status.findings),
        *(["copying"] if status.copies else []),
        *(
            f"            {name:<32} {copy.copied_rows:>12} rows  "
            f"{copy.copied_chunks} of {copy.chunks} chunks, as of {to_rfc3339(copy.position_micros)}"
            for name, copy in status.copies.items()
        ),
    ]
    return join_lines(lines)


def _describe_lag(status: "Status") -> str:
    if status.lag_s is None:
        return "lag         -"
    if status.is_silence:
        return f"silence     {status.lag_s} s since the source last had something to read"
    return f"lag         {status.lag_s} s behind the clock of this machine"


def _describe_table(name: str, table: "TableStatus") -> str:
    rows = table.rows if table.rows is not None else "-"
    return f"            {name:<32} {rows:>12} rows  snapshot {table.snapshot_id or '-'}"
