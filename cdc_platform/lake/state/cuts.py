"""Cuts: published, consistent points, one row each."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from cdc_platform.errors import CommitConflict, CutNotFound
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.commits.commits import POSITION, Version, ancestors_of, conflicts_as, head, number_of
from cdc_platform.model.base.schemas import CUTS
from cdc_platform.model.base.stored_names import CUT, CYCLE
from cdc_platform.model.base.stored_texts import understanding
from cdc_platform.model.base.timestamps import from_datetime, to_datetime

NUMBER = "cdc.cut"


@dataclass(frozen=True)
class Cut:
    """A source position, and the snapshot of every table with exactly the changes up to that position."""

    cut: int
    position_micros: int
    cycle: int
    tables: Mapping[str, int]
    published_micros: int

    def lag_s(self, at_micros: int | None = None, since_micros: int | None = None) -> float:
        """Return the lag: seconds from the position to a moment by this machine's clock.

        Args:
            at_micros: the moment; None means the time of publication.
            since_micros: the age of the oldest data that the cut lacks, as of `left_since`; then the lag
                counts from there.
        """
        moment_micros = self.published_micros if at_micros is None else at_micros
        if since_micros is not None:
            # Another machine's clock may put it into the future.
            return max(0.0, round((moment_micros - since_micros) / 1e6, 3))
        return round((moment_micros - self.position_micros) / 1e6, 3)


def cut_number(cut: Cut | None) -> int:
    """Return the number of a cut, 0 before the first."""
    return cut.cut if cut is not None else 0


def list_cuts(lake: Lake) -> tuple[Cut, ...]:
    """Return all cuts, oldest first."""
    return _scan(lake.system_table(CUT), "cut > 0")


def cut_positions(lake: Lake) -> list[int]:
    """Return the positions of all cuts, oldest first, without reading their tables, which take most space."""
    rows = lake.system_table(CUT).scan("cut > 0", selected_fields=("cut", "position")).to_arrow()
    return [from_datetime(position) for position in rows.sort_by("cut")["position"].to_pylist()]


def publications_since(lake: Lake, micros: int) -> list[tuple[int, int]]:
    """Return the number and the publication time of the newest cut at a moment and of all later cuts."""
    table = lake.system_table(CUT)
    newest = _newest(table)
    if newest is None:
        return []
    publications = _publications(table, f"published_at >= '{to_datetime(max(0, micros)).isoformat()}'")
    first = publications[0][0] - 1 if publications else newest.cut
    # By number: if the clock was set back, later cuts may have earlier publication times.
    return _publications(table, f"cut >= {first}")


def _publications(table: Table, row_filter: str) -> list[tuple[int, int]]:
    rows = table.scan(row_filter, selected_fields=("cut", "published_at")).to_arrow().sort_by("cut")
    moments = map(from_datetime, rows["published_at"].to_pylist())
    return list(zip(rows["cut"].to_pylist(), moments, strict=True))


def find_cuts(lake: Lake, numbers: Collection[int]) -> tuple[Cut, ...]:
    """Return the existing cuts among some numbers, oldest first."""
    if not numbers:
        return ()
    # Pyiceberg skips no files by a list of more than 200 numbers; the bound skips older files.
    cuts = ", ".join(map(str, numbers))
    return _scan(lake.system_table(CUT), f"cut >= {min(numbers)} and cut in ({cuts})")


def cuts_since(lake: Lake, cycle: int) -> tuple[Cut, ...]:
    """Return the cuts that hold a cycle of the log, oldest first."""
    return _scan(lake.system_table(CUT), f"cycle >= {cycle}")


def tables_published(lake: Lake, *, since_cycle: int = 0, since_micros: int = 0) -> frozenset[str]:
    """Return the tables and histories that a cut names, of those from a cycle and a position on."""
    where = f"cycle >= {since_cycle} and position >= '{to_datetime(since_micros).isoformat()}'"
    # There may be as many cuts as cycles.
    batches = lake.system_table(CUT).scan(where, selected_fields=("tables",)).to_arrow_batch_reader()
    return frozenset(name for batch in batches for name in pc.unique(batch["tables"].keys).to_pylist())


def cuts_since_moment(lake: Lake, micros: int) -> tuple[Cut, ...]:
    """Return the newest cut at a moment, if there was one, and all later cuts, oldest first."""
    publications = publications_since(lake, micros)
    return _scan(lake.system_table(CUT), f"cut >= {publications[0][0]}") if publications else ()


def cycle_published_by(lake: Lake, micros: int) -> int | None:
    """Return the newest cycle with a cut published by a moment, None if there was no cut."""
    before = f"published_at <= '{to_datetime(max(0, micros)).isoformat()}'"
    cycles = lake.system_table(CUT).scan(row_filter=before, selected_fields=("cycle",)).to_arrow()["cycle"]
    newest: int | None = pc.max(cycles).as_py()
    return newest


@understanding(CUT)
def _scan(table: Table, row_filter: str, snapshot_id: int | None = None) -> tuple[Cut, ...]:
    rows = table.scan(row_filter=row_filter, snapshot_id=snapshot_id).to_arrow().to_pylist()
    cuts = (
        Cut(
            cut=row["cut"],
            position_micros=from_datetime(row["position"]),
            cycle=row["cycle"],
            tables=dict(row["tables"]),
            published_micros=from_datetime(row["published_at"]),
        )
        for row in rows
    )
    return tuple(sorted(cuts, key=lambda cut: cut.cut))


def newest_cut(lake: Lake) -> Cut | None:
    """Return the newest cut, None before the first."""
    return _newest(lake.system_table(CUT))


@understanding(CUT)
def _newest(table: Table) -> Cut | None:
    for snapshot in ancestors_of(table, head(table)):
        number = number_of(snapshot, NUMBER)
        if number is not None:
            return _read_cut(Version(table.location(), snapshot.snapshot_id, table), number)
    return None


def cut_before(table: Table, lost_commit: Snapshot) -> Cut | None:
    """Return the newest cut before an unreadable commit to the table of cuts; None if there is none."""
    for snapshot in ancestors_of(table, lost_commit):
        number = number_of(snapshot, NUMBER)
        if snapshot != lost_commit and number is not None:
            return _scan(table, f"cut = {number}", snapshot.snapshot_id)[-1]
    return None


# A cycle needs the newest cut many times; the cuts of a few pipelines are cached.
@lru_cache(maxsize=8)
def _read_cut(version: Version, number: int) -> Cut:
    return _scan(version.table, f"cut = {number}")[-1]


def find_cut(lake: Lake, number: int) -> Cut:
    """Return one cut.

    Raises:
        CutNotFound: no cut has this number.
    """
    cuts = _scan(lake.system_table(CUT), f"cut = {number}")
    if not cuts:
        raise CutNotFound(f"No cut has this number: {number}. `cdc-platform cuts DEFS` lists them.")
    return cuts[0]


def append_cut(lake: Lake, cut: Cut) -> None:
    """Commit a cut.

    Raises:
        CommitConflict: another run published since the newest cut was read.
    """
    # The newest cut is read from the same version of the table to which the next one is appended.
    table = lake.system_table(CUT)
    newest = _newest(table)
    if newest is not None and newest.cut >= cut.cut:
        raise CommitConflict(f"Another run published cut {cut.cut}; the next cycle continues from it.")
    row = {
        "cut": cut.cut,
        "position": to_datetime(cut.position_micros),
        "cycle": cut.cycle,
        "tables": list(cut.tables.items()),
        "published_at": to_datetime(cut.published_micros),
    }
    properties = {NUMBER: str(cut.cut), CYCLE: str(cut.cycle), POSITION: str(cut.position_micros)}
    with conflicts_as(f"Another run published cut {cut.cut}; run the cycle again."):
        table.append(pa.Table.from_pylist([row], CUTS), snapshot_properties=properties)
