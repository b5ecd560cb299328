"""Names of columns that a table of the lake can have."""

from collections import Counter
from collections.abc import Collection, Mapping
from hashlib import sha256
from typing import Final

from cdc_platform.errors import RecordUnreadable
from cdc_platform.model.base.names import (
    MOST_COLUMN_CHARACTERS,
    case_key,
    is_reserved_column,
    long_column_reason,
)
from cdc_platform.model.schema.schema_policy import SchemaPolicy

EVENT_ID: Final = "_event_id"
"""Key of a table without one whose events are all kept."""
ROW_HASH: Final = "_row_hash"
"""Key of a table without one whose rows are known by their values."""

_TAKEN: Final = frozenset(
    {
        *(EVENT_ID, ROW_HASH, "_metadata"),
        # Columns of the views in which Spark shows a table's changes.
        *("_change_type", "_change_ordinal", "_commit_snapshot_id"),
    },
)
_OWN: Final = "__"
"""Begins the names of columns that the platform gives tables, and of those that it needs on the way."""
_DIGEST_DIGITS: Final = 6


def lake_names(names: Collection[str], keys: Collection[str], policy: SchemaPolicy) -> Mapping[str, str]:
    """Return the name that each column of an event gets in the lake, mostly its own.

    The lake takes no notice of case. Names that differ in nothing else get digests of themselves, as do
    reserved ones; so the values of two columns never meet in one, not even where the second was added later.
    A column of the key keeps its name.

    Raises:
        RecordUnreadable: there is such a name, and the policy is not to evolve; or a name is too long.
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
    renamed = {name for name in unfit if name not in keys or _is_taken(name)}
    return {name: _with_digest(name) if name in renamed else name for name in names}


def _is_taken(name: str) -> bool:
    """Return whether no column of the lake can have such a name."""
    return name.startswith(_OWN) or case_key(name) in _TAKEN or is_reserved_column(name)


def _with_digest(name: str) -> str:
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_DIGITS]
    return f"{name.removeprefix(_OWN)[: MOST_COLUMN_CHARACTERS - _DIGEST_DIGITS - 1]}_{digest}"
