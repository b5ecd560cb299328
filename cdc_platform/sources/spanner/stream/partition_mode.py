"""Change streams whose partitions this version cannot read, known by their options or by their records.

In the mode MUTABLE_KEY_RANGE key ranges move between partitions, and records are messages of the type
`google.spanner.v1.ChangeStreamRecord`: a column PROTO in GoogleSQL, bytes of another function in PostgreSQL.
"""

from collections.abc import Mapping
from typing import Any, Final

from cdc_platform.errors import PartitionModeUnsupported

MUTABLE: Final = "MUTABLE_KEY_RANGE"
MUTABLE_KINDS: Final = ("partition_start_record", "partition_end_record", "partition_event_record")
"""Kinds of records that only streams of this mode have."""

_MESSAGE_CODES: Final = (["PROTO"], ["BYTES"])
_ADVICE: Final = "which is fixed at creation, and name it in `change_stream`"


def check_partition_mode(options: Mapping[str, str], title: str) -> None:
    """Check the options of a stream.

    Raises:
        PartitionModeUnsupported: Its partitions are of a kind that this version cannot read.
    """
    if options.get("partition_mode", "").strip("'\"") == MUTABLE:
        raise PartitionModeUnsupported(
            f"The {title} has partition_mode = {MUTABLE}, which this version cannot read. Create one without "
            f"this option, {_ADVICE}",
        )
    if options.get("per_placement_tvf", "").lower() == "true":
        raise PartitionModeUnsupported(
            f"The {title} has per_placement_tvf = true, a read function for each placement, which this "
            f"version cannot read. Create one without this option, {_ADVICE}",
        )


def check_record_column(fields: Any) -> None:
    """Check that records do not come as messages.

    Raises:
        PartitionModeUnsupported: They do.
    """
    codes = [getattr(field.type_.code, "name", str(field.type_.code)) for field in fields or ()]
    if codes in _MESSAGE_CODES:
        raise mutable_records(f"a column of {codes[0]}")


def mutable_records(what: str) -> PartitionModeUnsupported:
    """Return the error for records that have the form of the other mode."""
    return PartitionModeUnsupported(
        f"The change stream returns {what}, as streams with partition_mode = {MUTABLE} do, which this "
        f"version cannot read. Create one without this option, {_ADVICE}",
    )
