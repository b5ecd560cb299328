"""`cdc-platform explain`: the changes that produced a row."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Group, RenderableType

from cdc_platform.commands.options import DEFS, NAME, CommandOnDefs, examples
from cdc_platform.model.base.quantities import as_count
from cdc_platform.model.base.timestamps import to_rfc3339
from cdc_platform.printing.lines import print_text
from cdc_platform.printing.progress_display import shown_step
from cdc_platform.printing.tables import make_grid, make_line, print_rendered

if TYPE_CHECKING:
    from cdc_platform.model.rows.row_provenance import ColumnChange, RowStep
    from cdc_platform.pipeline.on_demand.explanation import Explanation

INDENT: Final = 5
_NUMBER: Final = re.compile(r"-(\.?\d|Infinity$)", re.ASCII)
"""Beginning of a negative number, which no option matches."""


class _CommandOfKey(CommandOnDefs):
    """A command whose last argument is a key, which may be a negative number."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse negative numbers as arguments, and other texts with a leading dash as options."""
        end = args.index("--") if "--" in args else len(args)
        numbers = [text for text in args[:end] if _NUMBER.match(text)]
        options = [text for text in args[:end] if text not in numbers]
        return super().parse_args(ctx, [*options, "--", *numbers, *args[end + 1 :]])


@click.command(
    cls=_CommandOfKey,
    epilog=examples(
        "explain examples/my_bank/defs.yaml accounts 42",
        "explain examples/my_bank/defs.yaml accounts -5",
        "explain examples/my_bank/defs.yaml orders '[\"eu\", 7]'",
        'explain examples/my_bank/defs.yaml orders \'{"region": "eu", "order_id": 7}\' --json',
    ),
)
@DEFS
@click.argument("table")
@click.argument("key")
@NAME
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def explain(defs: Path, table: str, key: str, name: str | None, as_json: bool) -> None:
    """Show the changes that produced the row KEY of TABLE.

    Prints the changes in order: the columns that each one set, from which value to which, its transaction,
    its partition of the source and its record, and the first cut that showed it. Then the current row in the
    change log, and which change set each column. If the table began with an initial copy, the explanation
    begins with the copied row.

    TABLE is the table's name, as at the source or in the lake. KEY is the value itself if the primary key has
    one column; otherwise it is a JSON object of its columns, or a JSON array in the order of the key. A KEY
    that begins with a dash and is not a negative number comes last, after `--`.

    The command reads only the lake: no Spark is started, and the source may be down. The exit code is 1 if
    the table or the row is unknown.
    """
    from cdc_platform.components.loading import load_settings
    from cdc_platform.pipeline.on_demand.explanation import explain_row
    from cdc_platform.pipeline.opened.pipeline import open_existing

    with shown_step("search of the log"):
        explanation = explain_row(open_existing(load_settings(defs, name)), table, key)
    if as_json:
        print_text(json.dumps(explanation.to_dict(), indent=2))
    else:
        print_rendered(describe_explanation(explanation))


def describe_explanation(explanation: "Explanation") -> Group:
    """Return an explanation for people."""
    changes = as_count(len(explanation.provenance.steps), "change")
    parts: list[RenderableType] = [make_line(f"{explanation.table} {explanation.key.to_json()}: {changes}")]
    if explanation.copied is not None:
        parts += [
            make_line(),
            make_line(f"copied as it was at {to_rfc3339(explanation.copied.position_micros)}", "bold"),
            make_grid(
                [(name, _value(value)) for name, value in explanation.copied.values.items()], indent=INDENT
            ),
        ]
    for step in explanation.provenance.steps:
        parts += [make_line(), *_describe_step(explanation, step)]
    parts += [make_line(), *_describe_now(explanation)]
    if explanation.quarantined:
        sentence = f"{as_count(explanation.quarantined, 'record')} of this table in quarantine"
        parts += [make_line(), make_line(f"{sentence}: what they hold is in no change above.", "yellow")]
    return Group(*parts)


def _describe_step(explanation: "Explanation", step: "RowStep") -> list[RenderableType]:
    change, cut = step.change, explanation.cuts[step.number]
    partition = explanation.partitions.get(change.partition_token, change.partition_token)
    place = f"first shown by cut {cut.cut} at {to_rfc3339(cut.position_micros)}" if cut else "in no cut yet"
    facts = [
        ("transaction", change.transaction_id),
        ("partition", partition),
        ("record", f"{change.record_id}, mod {change.mod_ordinal}"),
        ("cycle", f"{change.cycle}, {place}"),
        *([("key before", str(change.previous_keys))] if change.previous_keys else []),
    ]
    columns = [(column.column, _describe_column(step, column)) for column in step.columns]
    return [
        make_line(f"#{step.number} {change.kind.value} at {to_rfc3339(change.made_micros)}", "bold"),
        make_grid(facts, indent=INDENT),
        make_grid(columns, indent=INDENT),
    ]


def _describe_column(step: "RowStep", column: "ColumnChange") -> str:
    text = _value(column.after)
    if column.before is None and step.change.kind.value != "update":
        return text
    return f"{_value(column.before)} -> {text}" if column.has_changed else f"{text} (set again)"


def _describe_now(explanation: "Explanation") -> list[RenderableType]:
    provenance = explanation.provenance
    if provenance.values is None:
        return [make_line(f"now  deleted by #{len(provenance.steps)}", "bold")]
    rows = [
        (name, _value(value), f"set by #{number}" if (number := provenance.set_by[name]) else "from the copy")
        for name, value in provenance.values.items()
    ]
    return [
        make_line("now" if rows else "now  a row of its key alone", "bold"),
        make_grid(rows, indent=INDENT),
    ]


def _value(value: Any) -> str:
    return "NULL" if value is None else json.dumps(value, ensure_ascii=False)
