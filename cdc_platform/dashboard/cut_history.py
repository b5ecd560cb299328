"""The cuts of a time span as columns, and the lag that readers saw in each column."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyiceberg.table import Table

from cdc_platform.dashboard.time_span import COLUMNS, Micros, TimeSpan, Values
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.state.cuts import Cut
from cdc_platform.model.base.stored_names import CUT
from cdc_platform.model.base.timestamps import to_datetime

_COLUMNS = ("cut", "position", "cycle", "published_at")


@dataclass(frozen=True)
class CutHistory:
    """Cuts in order: their publication times, positions, and cycles of the log."""

    published: Micros
    position: Micros
    cycle: Micros

    @property
    def first_micros(self) -> int | None:
        """Publication time of the first cut; None without cuts."""
        return int(self.published[0]) if len(self.published) else None

    def moments_of(self, cycles: Micros) -> Micros:
        """Return when each cycle was published; the maximum for a cycle without a cut."""
        later = np.append(self.published, np.iinfo(np.int64).max)
        moments: Micros = later[np.searchsorted(self.cycle, cycles)]
        return moments


def load_cut_history(lake: Lake, span: TimeSpan, newest: Cut | None) -> CutHistory:
    """Return the cuts published in a span, and the previous one if its lag would be visible.

    It does not read the tables of the cuts, which are most of a cut's data.
    """
    if newest is None:
        return CutHistory(*(np.empty(0, np.int64) for _ in range(3)))
    table, since = lake.system_table(CUT), to_datetime(span.start_micros).isoformat()
    later = _scan(table, f"published_at >= '{since}'")
    before = int(later["cut"][0].as_py()) - 1 if len(later) else newest.cut
    first_micros = int(_micros(later["published_at"])[0]) if len(later) else span.end_micros
    is_seen = before > 0 and first_micros - span.start_micros > span.column_s * 1e6
    rows = pa.concat_tables([_scan(table, f"cut = {before}"), later]) if is_seen else later
    return CutHistory(_micros(rows["published_at"]), _micros(rows["position"]), _micros(rows["cycle"]))


def _scan(table: Table, row_filter: str) -> pa.Table:
    return table.scan(row_filter, selected_fields=_COLUMNS).to_arrow().sort_by("cut")


def _micros(column: pa.ChunkedArray) -> Micros:
    micros: Micros = column.cast(pa.int64()).to_numpy()
    return micros


def lag_by_column(history: CutHistory, span: TimeSpan) -> Values:
    """Return the longest lag of the newest cut in each column, in seconds; NaN before the first cut.

    The lag is the present minus the position of the newest cut: it grows until the next cut is published.
    """
    lags = np.full(COLUMNS, np.nan)
    if not len(history.published):
        return lags
    # The lag is longest right before the next cut.
    before = np.append(history.position[:1], history.position[:-1])
    inside = history.published >= span.start_micros
    longest = ((history.published - before) / 1e6)[inside]
    np.fmax.at(lags, span.column_of(history.published[inside]), longest)
    newest = np.searchsorted(history.published, span.ends, side="right") - 1
    at_end = np.where(newest >= 0, (span.ends - history.position[newest]) / 1e6, np.nan)
    by_column: Values = np.fmax(lags, at_end)
    return by_column


def publication_by_column(history: CutHistory, span: TimeSpan) -> Values:
    """Return the longest time from reading events to publishing them in each column, in seconds."""
    seconds = np.full(COLUMNS, np.nan)
    durations = (history.published - history.position) / 1e6
    inside = history.published >= span.start_micros
    np.fmax.at(seconds, span.column_of(history.published[inside]), durations[inside])
    return seconds
