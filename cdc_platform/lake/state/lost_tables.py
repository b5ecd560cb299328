"""Published tables that another program has dropped or replaced."""

from itertools import takewhile

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from cdc_platform.errors import CommitConflict, LakeDamaged
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.commits.commits import ancestors_of, head, is_compaction
from cdc_platform.lake.state.copies import load_plans
from cdc_platform.lake.state.cuts import Cut, newest_cut


def is_lost(table: Table | None, name: str, cut: Cut | None) -> bool:
    """Return whether a table lacks the snapshot that a cut names."""
    if cut is None or name not in cut.tables:
        return False
    return table is None or stored_version(table, cut.tables[name]) is None


def stored_version(table: Table, snapshot_id: int) -> Snapshot | None:
    """Return the version of a table with the rows of a snapshot; None if the table has none.

    If another program has compacted `main` and expired the snapshot, it is the head of `main`.
    """
    snapshot, newest = table.metadata.snapshot_by_id(snapshot_id), head(table)
    compactions = takewhile(is_compaction, ancestors_of(table, newest))
    if snapshot is None and any(compaction.parent_snapshot_id == snapshot_id for compaction in compactions):
        return newest
    return snapshot


def require_published(lake: Lake, table: Table | None, name: str, cut: Cut | None) -> None:
    """Ensure that the lake has the version of a table that the newest cut names.

    Args:
        lake: the pipeline's part of the lake.
        table: the table; None if the lake has none.
        name: its name.
        cut: the newest cut.

    Raises:
        CommitConflict: another run has published since this one read the cut, so its snapshots may expire.
        LakeDamaged: another program has dropped or replaced the table.
    """
    if cut is None or not is_lost(table, name, cut):
        return
    # In this order: what the newest cut names does not expire.
    is_still_lost = is_lost(lake.table(name), name, cut)
    if not is_still_lost or newest_cut(lake) != cut:
        raise CommitConflict(
            f"Another run has published since this run looked at table `{name}` or at cut {cut.cut}; the "
            "next cycle continues from there."
        )
    what = "dropped it" if table is None else "replaced it or expired its snapshots"
    raise LakeDamaged(
        f"table `{name}`",
        f"another program has {what}: the lake lacks its snapshot {cut.tables[name]} of the newest cut, "
        f"{cut.cut}",
        remedy=_remedy(lake, name),
    )


def _remedy(lake: Lake, name: str) -> str:
    if name in load_plans(lake):
        way = (
            "copy the table again: leave it out of the setting `tables` until the next cut, drop it in the "
            "lake, and name it again"
        )
    else:
        way = (
            "materialise it in Dagster with the run setting `rebuild: true`, which rebuilds it and all "
            "others that are lost from the change log"
        )
    return (
        f"Restore the catalog and all tables of the pipeline from one backup, or {way}. Until then, nothing "
        "is published."
    )
