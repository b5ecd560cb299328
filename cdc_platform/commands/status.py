"""`cdc-platform status`: where a pipeline stands."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from cdc_platform.commands.common import DEFS, EVERY_NAME, examples, open_found
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
    found = [read_status(pipeline) for pipeline in open_found(chosen)]
    as_objects = [one.to_dict() for one in found]
    print_text(json.dumps(as_objects, indent=2) if as_json else "\n\n".join(map(describe_status, found)))
    if len(found) < len(chosen):
        sys.exit(1)


def describe_status(found: "Status") -> str:
    """Return a status as lines for people."""
    told = found.to_dict()
    cut = f"{told['cut']} at {told['cut_position']}" if told["cut"] is not None else "none yet"
    partitions = (
        f"partitions  {len(found.live_partitions)} live, {len(found.waiting_partitions)} waiting, "
        f"{found.finished_partitions} finished"
    )
    lines = [
        f"pipeline    {found.pipeline}, {f'cycle {found.cycle}' if found.has_begun else 'no cycle yet'}",
        f"watermark   {told['watermark'] or 'none yet'}",
        _describe_lag(found),
        partitions,
        *(f"            {key}" for key in found.live_partitions),
        *(f"            {stuck.describe()}" for stuck in found.stuck_partitions),
        f"cut         {cut}",
        f"quarantine  {found.quarantined} open",
        *([f"unread      {len(found.unread_files)} files"] if found.unread_files else []),
        *(f"            {file.describe()}" for file in found.unread_files[:SHOWN_FILES]),
        "tables",
        *(_describe_table(name, table) for name, table in found.tables.items()),
        *(["notes"] if found.findings else []),
        *(f"            {finding}" for finding in found.findings),
        *(["copying"] if found.copies else []),
        *(
            f"            {name:<32} {copy.copied_rows:>12} rows  "
            f"{copy.copied_chunks} of {copy.chunks} chunks, as of {to_rfc3339(copy.position_micros)}"
            for name, copy in found.copies.items()
        ),
    ]
    return join_lines(lines)


def _describe_lag(found: "Status") -> str:
    if found.lag_s is None:
        return "lag         -"
    if found.is_silence:
        return f"silence     {found.lag_s} s since the source last had something to read"
    return f"lag         {found.lag_s} s behind the clock of this machine"


def _describe_table(name: str, table: "TableStatus") -> str:
    rows = table.rows if table.rows is not None else "-"
    return f"            {name:<32} {rows:>12} rows  snapshot {table.snapshot_id or '-'}"
