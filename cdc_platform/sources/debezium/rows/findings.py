"""Findings about an event's values: whether they were sent, and other facts for users."""

from collections.abc import Mapping
from typing import Any, TypeGuard

import msgspec

from cdc_platform.model.stream.events import FaultyEvent, SourceEvent
from cdc_platform.sources.debezium.rows.plans import ColumnPlan, TablePlan
from cdc_platform.sources.debezium.values.detector import MASKED, UNAVAILABLE, UNDECIDED
from cdc_platform.sources.debezium.wire.event_faults import NEW_KEYS
from cdc_platform.sources.debezium.wire.message_contents import DataEvent, MessageUnusable
from cdc_platform.sources.debezium.wire.plain_lines import RUN_ID
from cdc_platform.sources.debezium.wire.positions import is_snapshot
from cdc_platform.sources.json_codec import write


class Findings(msgspec.Struct):
    """Findings about an event's values."""

    unavailable: list[str] = msgspec.field(default_factory=list)
    literal_markers: list[str] = msgspec.field(default_factory=list)
    null_or_default: list[str] = msgspec.field(default_factory=list)
    lossy_nulls: list[str] = msgspec.field(default_factory=list)


def is_unsent_under_full(
    before: Mapping[str, Any] | None, column: ColumnPlan, value: Any, _: Findings | None = None
) -> bool:
    """Return whether a value is the marker of an array, which connectors before 2.5 also send under FULL."""
    is_same = before is not None and column.name in before and value == before[column.name]
    return column.detector.is_marker(value) and not is_same


def is_unsent_in_update(column: ColumnPlan, value: Any, findings: Findings) -> bool:
    """Return whether a value of an update was not sent.

    Raises:
        MessageUnusable: the settings do not state what null means here, or the marker is masked.
    """
    state = column.detector.judge(value)
    if state is UNDECIDED:
        raise MessageUnusable(
            f"The column `{column.name}` is null in an update. Debezium also sends null for an unchanged "
            f"large value of the type {column.encoding.source}, under the settings of this connector, so the "
            "value may be there. State what null means in `null_policies` (unavailable, null or error), by "
            "column or by type; name the PostgreSQL type in `columns` where the stream does not state it; or "
            "run ALTER TABLE ... REPLICA IDENTITY FULL, and name a table that has it already in "
            "`full_identity`."
        )
    if state is MASKED:
        raise MessageUnusable(
            f"The column `{column.name}` seems to have a marker that the connector has masked: "
            f"{str(value)[:80]!r}. State in `column_placeholders` what the marker becomes: the text itself, "
            "truncate:LENGTH or hash:ALGORITHM:SALT."
        )
    if value is None and column.detector.null_policy is not None:
        findings.lossy_nulls.append(column.name)
    return state is UNAVAILABLE


def is_unsent_in_insert(is_new: bool, column: ColumnPlan, value: Any, findings: Findings) -> bool:
    """Return whether a value of an insert was not sent.

    An insert has all values unless its row had another key. If that is not certain, a marker counts as a
    marker, and null as NULL.

    Args:
        is_new: whether the row certainly had no other key.
        column: the value's column.
        value: the value.
        findings: receives other facts about the value.
    """
    is_literal = column.detector.is_marker(value)
    if is_literal and is_new:
        findings.literal_markers.append(column.name)
    return is_literal and not is_new


def complete_row(plan: TablePlan, row: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with the values that were not sent taken from the whole row before.

    Some connectors send markers of arrays although the row before has the values.

    Raises:
        MessageUnusable: the row before does not have a value that was not sent.
    """
    values = dict(row)
    for name, column in plan.columns.items():
        if name in row and is_unsent_under_full(before, column, row[name]):
            if name not in before:
                raise MessageUnusable(f"The column `{name}` was not sent, and the row before lacks it, too.")
            values[name] = before[name]
    return values


def gives_key_up(event: object) -> TypeGuard[SourceEvent | FaultyEvent]:
    """Return whether an event, faulty or not, is the delete of a key change whose headers name a key."""
    return isinstance(event, SourceEvent | FaultyEvent) and f'"{NEW_KEYS}":' in (event.metadata or "")


class Metadata(msgspec.Struct, omit_defaults=True):
    """Metadata of a change; members with default values are left out."""

    op: str
    schema: str = ""
    table: str = ""
    lsn: int = 0
    sequence: tuple[int | None, int | None] | None = None
    total_order: int = 0
    snapshot: str = ""
    run_id: Any = None
    new_keys: str | None = None
    literal_markers: list[str] = msgspec.field(default_factory=list)
    null_or_default: list[str] = msgspec.field(default_factory=list)
    lossy_nulls: list[str] = msgspec.field(default_factory=list)


def metadata_of(event: DataEvent, findings: Findings, new_keys: str | None = None) -> str:
    """Return the facts of an event besides its row, as JSON."""
    source, headers = event.source, event.message.headers
    return write(
        Metadata(
            event.op,
            source.schema,
            source.table,
            source.lsn or 0,
            source.sequence,
            event.total_order or 0,
            source.snapshot if is_snapshot(source) else "",
            (headers.get(RUN_ID) or None) if headers else None,
            new_keys,
            findings.literal_markers,
            findings.null_or_default,
            findings.lossy_nulls,
        )
    )
