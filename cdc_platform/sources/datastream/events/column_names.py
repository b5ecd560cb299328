"""Valid names of columns in the lake."""

from collections import Counter
from collections.abc import Collection, Mapping
from hashlib import sha256
from typing import Final

from cdc_platform.errors import RecordUnreadable
from cdc_platform.model.base.names import (
    MAX_COLUMN_CHARACTERS,
    case_key,
    is_reserved_column,
    long_column_reason,
)
from cdc_platform.model.schema.schema_policy import SchemaPolicy

EVENT_ID: Final = "_event_id"
"""Key of a table without a key, of which all events are kept."""
ROW_HASH: Final = "_row_hash"
"""Key of a table without a key, whose rows are identified by their values."""

_TAKEN: Final = frozenset(
    {
        *(EVENT_ID, ROW_HASH, "_metadata"),
        # Columns of Spark's changelog views.
        *("_change_type", "_change_ordinal", "_commit_snapshot_id"),
    },
)
_OWN: Final = "__"
"""Prefix of the columns that the platform adds to tables and intermediate frames."""
_DIGEST_DIGITS: Final = 6


def lake_names(names: Collection[str], keys: Collection[str], policy: SchemaPolicy) -> Mapping[str, str]:
    """Return the name of each column of an event in the lake, mostly its own.

    The lake ignores case. Names that differ only in case get digests of themselves, and so do reserved names,
    so the values of two columns never mix, even if the second one is added later. Key columns keep their
    names.

    Raises:
        RecordUnreadable: there is such a name and the policy does not evolve, or a name is too long.
    """
    if (reason := long_column_reason(names)) is not None:
        raise RecordUnreadable(reason)
    counts = Counter(case_key(name) for name in names)
    unfit = {name for name in names if counts[case_key(name)] > 1 or _is_taken(name)}
    if unfit and policy is not SchemaPolicy.EVOLVE:
        raise RecordUnreadable(
            f"The lake cannot have columns of these names, which are empty, reserved or differ only in "
            f"case, and the table's `schema_policy` is {policy.value}: {', '.join(sorted(unfit))}"
        )
    renamed_columns = {name for name in unfit if name not in keys or _is_taken(name)}
    return {name: _with_digest(name) if name in renamed_columns else name for name in names}


def _is_taken(name: str) -> bool:
    """Return whether a name is not available for a column of the lake."""
    return name.startswith(_OWN) or case_key(name) in _TAKEN or is_reserved_column(name)


def _with_digest(name: str) -> str:
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_DIGITS]
    return f"{name.removeprefix(_OWN)[: MAX_COLUMN_CHARACTERS - _DIGEST_DIGITS - 1]}_{digest}"
