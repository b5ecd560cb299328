"""Places in the lake for which several source tables ask, and the table that gets each."""

from collections.abc import Collection, Container, Mapping, Sequence

from pyiceberg.table import Table

from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.state.cuts import newest_cut
from cdc_platform.model.schema.evolution import SchemaHistory
from cdc_platform.model.schema.lake_tables import LakeTable, Refusals, asked_for, contested, find_refused
from cdc_platform.model.schema.table_schema import PRIMARY_KEY


def refused_tables(
    lake: Lake, history: SchemaHistory, names: Collection[str], histories: Container[str]
) -> Refusals:
    """Return what of some source tables the lake cannot have, and why.

    What the lake has keeps its place, also where the settings no longer name it; else the one that was known
    first has it, and of those that are not known yet the first by name. So a place never changes hands.

    Args:
        lake: the pipeline's part of the lake.
        history: the source tables that are known, in their order.
        names: the source tables that are wanted.
        histories: those of them that are to have a history.
    """
    ordered_names = history.names_in_order
    every = (*ordered_names, *sorted({*names} - {*ordered_names}))
    # A history stays in the lake when its option is left out.
    possible = contested(asked_for(every, histories=every))
    lake_tables = asked_for((name for name in every if name in names), histories)
    return find_refused(lake_tables, _holders(lake, possible))


def _holders(lake: Lake, possible: Sequence[LakeTable]) -> Mapping[str, LakeTable]:
    """Return by place which of several tables the lake has there."""
    there = [table for table in possible if _is_there(lake.table(table.name), table)]
    cut = newest_cut(lake) if there else None
    named = cut.tables if cut is not None else {}
    holders: dict[str, LakeTable] = {}
    # A catalog that takes no notice of case has one table by the names of both.
    for table in sorted(there, key=lambda table: table.name not in named):
        holders.setdefault(table.place, table)
    return holders


def _is_there(stored: Table | None, table: LakeTable) -> bool:
    if stored is None:
        return False
    # Of all tables only a history has no key.
    has_key = any(field.doc == PRIMARY_KEY for field in stored.schema().fields)
    return has_key != table.is_history
