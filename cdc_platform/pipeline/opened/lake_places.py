"""Assignment of places in the lake that several source tables claim."""

from collections.abc import Collection, Container, Mapping, Sequence

from pyiceberg.table import Table

from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.state.cuts import newest_cut
from cdc_platform.model.schema.evolution import SchemaHistory
from cdc_platform.model.schema.lake_tables import LakeTable, Refusals, claims_of, collisions, find_refusals
from cdc_platform.model.schema.table_schema import PRIMARY_KEY


def refused_tables(
    lake: Lake, history: SchemaHistory, names: Collection[str], histories: Container[str]
) -> Refusals:
    """Return the tables and histories that the lake cannot have, each with the one that holds its place.

    A table in the lake keeps its place, even if the settings no longer name it. A free place goes to the
    table that was known first, and among unknown tables to the first by name. A place never changes hands.

    Args:
        lake: the pipeline's part of the lake.
        history: the known source tables, in the order in which they came up.
        names: the source tables to materialise.
        histories: the source tables among them with a history.
    """
    ordered_names = history.names_in_order
    every = (*ordered_names, *sorted({*names} - {*ordered_names}))
    # A history stays in the lake when its option is left out.
    possible = collisions(claims_of(every, histories=every))
    lake_tables = claims_of((name for name in every if name in names), histories)
    return find_refusals(lake_tables, _holders(lake, possible))


def _holders(lake: Lake, possible: Sequence[LakeTable]) -> Mapping[str, LakeTable]:
    """Return, by place, the table among several candidates that the lake has there."""
    stored_tables = [table for table in possible if _is_there(lake.table(table.name), table)]
    cut = newest_cut(lake) if stored_tables else None
    cut_tables = cut.tables if cut is not None else {}
    holders: dict[str, LakeTable] = {}
    # A catalog that ignores case returns one table for both names.
    for table in sorted(stored_tables, key=lambda table: table.name not in cut_tables):
        holders.setdefault(table.place, table)
    return holders


def _is_there(stored_table: Table | None, table: LakeTable) -> bool:
    if stored_table is None:
        return False
    # Of all tables only a history has no key.
    has_key = any((field.doc or "").startswith(PRIMARY_KEY) for field in stored_table.schema().fields)
    return has_key != table.is_history
