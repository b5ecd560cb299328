"""Tables of the lake that source tables ask for: of two that would have one name, one is refused."""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from cdc_platform.model.base.names import lake_table_name
from cdc_platform.model.schema.table_options import history_name


@dataclass(frozen=True)
class LakeTable:
    """Lake table of a source table: the table of its rows, or that of its history."""

    source_table: str
    is_history: bool = False

    @property
    def name(self) -> str:
        """Name by which it is asked for."""
        return history_name(self.source_table) if self.is_history else self.source_table

    @property
    def place(self) -> str:
        """The name by which a lake knows it: Spark and most catalogs ignore case."""
        return lake_table_name(self.name).lower()

    @property
    def text(self) -> str:
        """The table as messages say it."""
        return f"the history of `{self.source_table}`" if self.is_history else f"`{self.source_table}`"


Refusals = Mapping[LakeTable, LakeTable]
"""Tables that the lake cannot have, each with the one that has its place."""
NOTHING_REFUSED: Final[Refusals] = MappingProxyType({})


def asked_for(source_tables: Iterable[str], histories: Container[str]) -> Iterator[LakeTable]:
    """Yield what source tables ask for, each table before its history.

    Args:
        source_tables: names, those that come first before those that give way to them.
        histories: names of those that have a history.
    """
    for name in source_tables:
        yield LakeTable(name)
        if name in histories:
            yield LakeTable(name, is_history=True)


def contested(tables: Iterable[LakeTable]) -> tuple[LakeTable, ...]:
    """Return those whose place several ask for."""
    lake_tables = tuple(tables)
    counts = Counter(table.place for table in lake_tables)
    return tuple(table for table in lake_tables if counts[table.place] > 1)


def find_refused(lake_tables: Iterable[LakeTable], holders: Mapping[str, LakeTable]) -> Refusals:
    """Return the tables that collide with others; a refused table has no history either.

    Args:
        lake_tables: the result of `asked_for`.
        holders: places that are taken already, each with what has it.
    """
    places, refused = dict(holders), dict[LakeTable, LakeTable]()
    for table in lake_tables:
        if table.is_history and LakeTable(table.source_table) in refused:
            continue
        holder = places.setdefault(table.place, table)
        if holder != table:
            refused[table] = holder
    return refused


def describe_refusals(refused: Refusals) -> Iterator[str]:
    """Yield a sentence on each table that the lake cannot have, with what to do."""
    for table, holder in refused.items():
        has_place = f"the lake has {holder.text} under that name, and takes no notice of case"
        if table.is_history:
            yield (
                f"The history of `{table.source_table}` is not kept: {has_place}. Name one of both source "
                "tables in the `tables` of a pipeline of its own."
            )
        else:
            yield (
                f"{table.text} is not in the lake: {has_place}. Its changes are in the change log only. Name "
                "it in the `tables` of a pipeline of its own, and that has it."
            )
