"""Policies for events whose table had other columns than the lake's."""

from collections.abc import Mapping
from enum import StrEnum

from cdc_platform.model.base.names import case_key
from cdc_platform.model.schema.observed_columns import ObservedColumn
from cdc_platform.model.schema.table_schema import ColumnType
from cdc_platform.model.schema.widening import joined_type


class SchemaPolicy(StrEnum):
    """Reaction to a change of a table's schema."""

    EVOLVE = "evolve"
    """The lake's table follows; names that the lake cannot distinguish get a digest as a suffix."""
    FREEZE = "freeze"
    """The table keeps its columns, and new ones are left out, unless they are new by case only."""
    QUARANTINE = "quarantine"
    """Events of another schema go to quarantine."""


def find_refusal(
    table: str,
    table_types: Mapping[str, ColumnType],
    record_columns: Mapping[str, ObservedColumn],
    policy: SchemaPolicy,
) -> str | None:
    """Return the reason to quarantine events with these columns, None if the policy accepts them.

    Args:
        table: name of their table.
        table_types: the columns of the table, which stay as they are.
        record_columns: the columns of the events.
        policy: the schema policy of the table.
    """
    if policy is SchemaPolicy.EVOLVE:
        return None
    differences = [
        f"`{name}` is {column.type.text}, and in the table {table_types[name].text}"
        for name, column in record_columns.items()
        if name in table_types and joined_type(table_types[name], column.type) != table_types[name]
    ]
    names_by_case = {case_key(name): name for name in table_types}
    if policy is SchemaPolicy.FREEZE:
        # It may be the same column: leaving it out as new would set that to NULL.
        differences += [
            f"`{name}` is `{names_by_case[case_key(name)]}` in the table"
            for name in record_columns
            if name not in table_types and case_key(name) in names_by_case
        ]
    if policy is SchemaPolicy.QUARANTINE:
        differences += [f"`{name}` is new" for name in record_columns if name not in table_types]
        differences += [f"`{name}` is missing" for name in table_types if name not in record_columns]
    if not differences:
        return None
    text = ", ".join(differences)
    return f"The columns of `{table}` have changed, and its `schema_policy` is {policy.value}: {text}"
