"""The time span of the charts, divided into columns."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from cdc_platform.model.base.timestamps import MICROS_PER_S

COLUMNS: Final = 160
"""Columns of a chart: each is two or three pixels wide on a phone, so more would be invisible."""
_SHORTEST_S: Final = 60.0

Micros = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]
"""One value for each column; NaN where a column has none."""


@dataclass(frozen=True)
class TimeSpan:
    """A time span up to the present, in microseconds; never empty."""

    start_micros: int
    end_micros: int

    @classmethod
    def before(cls, now_micros: int, hours: float) -> "TimeSpan":
        """Return the span of the last hours before a time."""
        return cls(now_micros - max(1, int(hours * 3600 * MICROS_PER_S)), now_micros)

    def since(self, first_micros: int) -> "TimeSpan":
        """Return the part of the span after a time, so that a chart begins near its first data."""
        latest = self.end_micros - int(_SHORTEST_S * MICROS_PER_S)
        start = max(self.start_micros, min(first_micros, latest))
        return TimeSpan(min(start, self.end_micros - 1), self.end_micros)

    @property
    def column_s(self) -> float:
        """Seconds of a column."""
        return (self.end_micros - self.start_micros) / COLUMNS / MICROS_PER_S

    @property
    def ends(self) -> Micros:
        """The last moment of each column."""
        return np.linspace(self.start_micros, self.end_micros, COLUMNS + 1).astype(np.int64)[1:]

    def column_of(self, moments: Micros) -> npt.NDArray[np.intp]:
        """Return the column of each time; times outside the span get the first or last one."""
        return np.clip(np.searchsorted(self.ends, moments), 0, COLUMNS - 1)
