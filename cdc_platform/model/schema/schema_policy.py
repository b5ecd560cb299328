"""What becomes of events whose table had other columns when they were made."""

from collections.abc import Mapping
from enum import StrEnum

from cdc_platform.model.base.names import case_key
from cdc_platform.model.schema.observed_columns import SeenColumn
from cdc_platform.model.schema.table_schema import ColumnType
from cdc_platform.model.schema.widening import joined_type


class SchemaPolicy(StrEnum):
    """What happens when the schema of a table changes."""

    EVOLVE = "evolve"
    """The lake's table follows; names that the lake cannot tell apart get a digest of themselves."""
    FREEZE = "freeze"
    """The table keeps the columns that it has, and new ones are left out, unless they are so by case only."""
    QUARANTINE = "quarantine"
    """Events of another schema go to quarantine."""


def find_refusal(
    table: str,
    known: Mapping[str, ColumnType],
    seen: Mapping[str, SeenColumn],
    policy: SchemaPolicy,
) -> str | None:
    """Return why events with these columns go to quarantine, None where they do not.

    Args:
        table: their table.
        known: the columns that the table has, and keeps.
        seen: the columns of the events.
        policy: the table's.
    """
    if policy is SchemaPolicy.EVOLVE:
        return None
    found = [
        f"`{name}` is {column.type.text}, and in the table {known[name].text}"
        for name, column in seen.items()
        if name in known and joined_type(known[name], column.type) != known[name]
    ]
    cased = {case_key(name): name for name in known}
    if policy is SchemaPolicy.FREEZE:
        # Left out as new, it would set the column to NULL that it may well be.
        found += [
            f"`{name}` is `{cased[case_key(name)]}` in the table"
            for name in seen
            if name not in known and case_key(name) in cased
        ]
    if policy is SchemaPolicy.QUARANTINE:
        found += [f"`{name}` is new" for name in seen if name not in known]
        found += [f"`{name}` is lacking" for name in known if name not in seen]
    if not found:
        return None
    named = ", ".join(found)
    return f"The columns of `{table}` have changed, and its `schema_policy` is {policy.value}: {named}"
