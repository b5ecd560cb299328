"""Properties of the columns of the platform's own tables, for the writers of Parquet files."""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from cdc_platform.model.base.stored_names import LOG, RAW

DICTIONARY: Final = "write.parquet.dict-encoding-enabled.column."
BOUNDS: Final = "write.parquet.stats-enabled.column."
"""Minimum and maximum of a column in each file and page, which let filters skip files and pages."""
_TEXTS: Final = (
    *(f"mods.element.{name}" for name in ("keys", "new_values", "old_values")),
    *(f"event.{name}" for name in ("event_id", "metadata", "text")),
)
UNREPEATED: Final[Mapping[str, tuple[str, ...]]] = {
    RAW: ("record_sequence", "record_order", "server_transaction_id", *_TEXTS),
    LOG: ("ordering_key", "transaction_id", "record_id", "keys", "new_values", "old_values"),
}
"""Columns with mostly distinct values, for which a dictionary would be built and discarded."""
UNBOUNDED: Final[Mapping[str, tuple[str, ...]]] = {
    RAW: ("record_order", "column_types", *_TEXTS),
    LOG: ("ordering_key", "record_id", "new_values", "old_values"),
}
"""Long texts without filters, for which computing the minimum and maximum is not worthwhile."""


def plain_columns(identifier: str, schema: pa.Schema) -> dict[str, str]:
    """Return the properties that switch off dictionaries and bounds of columns."""
    name = identifier.rpartition(".")[2]
    return {
        f"{prefix}{column}": "false"
        for prefix, columns in ((DICTIONARY, UNREPEATED), (BOUNDS, UNBOUNDED))
        for column in columns.get(name, ())
        if column.partition(".")[0] in schema.names
    }
