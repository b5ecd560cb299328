"""Tables of the lake that source tables claim; of two claims to one name, one is refused."""

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
        """Its name before the lake's naming rules."""
        return history_name(self.source_table) if self.is_history else self.source_table

    @property
    def place(self) -> str:
        """Its name in the lake, in lower case: Spark and most catalogs ignore case."""
        return lake_table_name(self.name).lower()

    @property
    def text(self) -> str:
        """The table's name in messages."""
        return f"the history of `{self.source_table}`" if self.is_history else f"`{self.source_table}`"


Refusals = Mapping[LakeTable, LakeTable]
"""Tables that the lake cannot have, each with the table that holds its place."""
NOTHING_REFUSED: Final[Refusals] = MappingProxyType({})


def claims_of(source_tables: Iterable[str], histories: Container[str]) -> Iterator[LakeTable]:
    """Yield the lake tables that source tables claim, each table before its history.

    Args:
        source_tables: names, in order of precedence.
        histories: names of the tables with a history.
    """
    for name in source_tables:
        yield LakeTable(name)
        if name in histories:
            yield LakeTable(name, is_history=True)


def collisions(tables: Iterable[LakeTable]) -> tuple[LakeTable, ...]:
    """Return the tables whose place several tables claim."""
    lake_tables = tuple(tables)
    counts = Counter(table.place for table in lake_tables)
    return tuple(table for table in lake_tables if counts[table.place] > 1)


def find_refusals(lake_tables: Iterable[LakeTable], holders: Mapping[str, LakeTable]) -> Refusals:
    """Return the tables that collide with others; a refused table has no history either.

    Args:
        lake_tables: the result of `claims_of`.
        holders: places that are already taken, each with its table.
    """
    places, refusals = dict(holders), dict[LakeTable, LakeTable]()
    for table in lake_tables:
        if table.is_history and LakeTable(table.source_table) in refusals:
            continue
        holder = places.setdefault(table.place, table)
        if holder != table:
            refusals[table] = holder
    return refusals


def describe_refusals(refusals: Refusals) -> Iterator[str]:
    """Yield a sentence on each table that the lake cannot have, with advice."""
    for table, holder in refusals.items():
        has_place = f"{holder.text} has that name in the lake, which ignores case"
        if table.is_history:
            yield (
                f"The history of `{table.source_table}` is not kept: {has_place}. Name one of the two source "
                "tables in the setting `tables` of another pipeline."
            )
        else:
            yield (
                f"{table.text} is not in the lake: {has_place}. Only the change log has its changes. To have "
                "the table, name it in the setting `tables` of another pipeline."
            )
