"""States of cuts: readable or expired, and pinned or not."""

from dataclasses import dataclass

from pyiceberg.table import Table

from cdc_platform.errors import CutNotFound
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.state.cuts import Cut, list_cuts


@dataclass(frozen=True)
class CutState:
    """A cut, and the state of its snapshots.

    Args:
        cut: the cut.
        expired: its tables whose snapshot has expired, or that were dropped.
        tagged_tables: its tables that have the cut's tag.
    """

    cut: Cut
    expired: tuple[str, ...]
    tagged_tables: tuple[str, ...] = ()

    @property
    def is_readable(self) -> bool:
        """Whether all its tables can still be read at the cut."""
        return not self.expired

    @property
    def is_pinned(self) -> bool:
        """Whether every table has the cut's tag."""
        return bool(self.tagged_tables) and len(self.tagged_tables) == len(self.cut.tables)


def tag_name(number: int) -> str:
    """Return the tag of a pinned cut, which other engines can also use to read its tables."""
    return f"cut_{number}"


def cut_states(lake: Lake) -> tuple[CutState, ...]:
    """Return all cuts and their states, oldest first; reads metadata only."""
    cuts = list_cuts(lake)
    tables = {name: lake.table(name) for name in {name for cut in cuts for name in cut.tables}}
    return tuple(_state(cut, tables) for cut in cuts)


def cut_state(lake: Lake, cut: Cut) -> CutState:
    """Return the state of one cut; loads only the tables of this cut."""
    return _state(cut, {name: lake.table(name) for name in cut.tables})


def _state(cut: Cut, tables: "dict[str, Table | None]") -> CutState:
    cut_tables = {name: tables[name] for name in cut.tables}
    expired_tables = tuple(
        name
        for name, table in cut_tables.items()
        if table is None or table.metadata.snapshot_by_id(cut.tables[name]) is None
    )
    tagged_tables = (
        name for name, table in cut_tables.items() if table is not None and is_tagged(table, cut, name)
    )
    return CutState(cut, expired_tables, tuple(tagged_tables))


def is_tagged(table: Table, cut: Cut, name: str) -> bool:
    """Return whether a table of a cut has its tag."""
    tag = table.metadata.refs.get(tag_name(cut.cut))
    return tag is not None and tag.snapshot_id == cut.tables[name]


def require_readable(state: CutState) -> CutState:
    """Return the state of a cut.

    Raises:
        CutNotFound: a snapshot of it has expired.
    """
    if state.is_readable:
        return state
    raise CutNotFound(
        f"Cut {state.cut.cut} can no longer be read, because these tables lack its snapshots: "
        f"{', '.join(state.expired)}. They have expired, or another program has dropped the tables. Choose "
        "another cut; `cdc-platform cuts DEFS` lists them, and --pin N keeps a cut."
    )
