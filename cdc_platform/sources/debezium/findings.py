"""What the values of an event were found to be, and what the log keeps of it beyond its row."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cdc_platform.sources.debezium.envelope import DataEvent, Unreadable
from cdc_platform.sources.debezium.identity import has_content
from cdc_platform.sources.debezium.plans import ColumnPlan
from cdc_platform.sources.debezium.positions import is_snapshot
from cdc_platform.sources.debezium.unavailable import Verdict
from cdc_platform.sources.json_codec import write


@dataclass(slots=True)
class Findings:
    """What an event's values were found to be."""

    unavailable: list[str] = field(default_factory=list)
    literal_markers: list[str] = field(default_factory=list)
    null_or_default: list[str] = field(default_factory=list)
    lossy_nulls: list[str] = field(default_factory=list)


def is_unavailable(
    column: ColumnPlan, value: Any, before: Mapping[str, Any] | None, findings: Findings
) -> bool:
    """Whether a value was not sent.

    Raises:
        Unreadable: nobody has said what null means here, or the marker is masked.
    """
    if before is not None and column.name in before and (value is None or value == before[column.name]):
        return False  # the whole row before the change is known, so a value that is the same was sent
    verdict = column.detector.judge(value)
    if verdict is Verdict.UNDECIDED:
        raise Unreadable(
            f"The column `{column.name}` is null in an update. Debezium also sends null for an unchanged "
            f"large value of the type {column.encoding.source}, under the settings of this connector, so the "
            "value may be there. Say what null means in `null_policies` (unavailable, null or error), by "
            "column or by type; name the PostgreSQL type in `columns` where the stream does not tell it; or "
            "run ALTER TABLE ... REPLICA IDENTITY FULL."
        )
    if verdict is Verdict.MASKED:
        raise Unreadable(
            f"The column `{column.name}` seems to have a marker that the connector has masked: "
            f"{str(value)[:80]!r}. Say in `column_placeholders` what the marker becomes: the text itself, "
            "truncate:LENGTH or hash:ALGORITHM:SALT."
        )
    if value is None and column.detector.null_policy is not None:
        findings.lossy_nulls.append(column.name)
    return verdict is Verdict.UNAVAILABLE


def metadata_of(event: DataEvent, findings: Findings, new_keys: str | None = None) -> str:
    """Return what is known of an event beyond its row; members that say nothing are left out."""
    source = event.source
    members = {
        "op": event.op.value,
        "schema": source.schema,
        "table": source.table,
        "lsn": source.lsn,
        "sequence": source.sequence,
        "total_order": event.total_order,
        "snapshot": source.snapshot if is_snapshot(source) else None,
        "run_id": (event.message.headers or {}).get("__debezium.context.runId"),
        "new_keys": new_keys,
        "literal_markers": findings.literal_markers,
        "null_or_default": findings.null_or_default,
        "lossy_nulls": findings.lossy_nulls,
    }
    return write({name: value for name, value in members.items() if has_content(value)})
