"""What all sources have in common whose events belong to the tick that reads them."""

import time

from cdc_platform.model.looks import Look
from cdc_platform.model.sightings import SeenColumn


class SourceOfArrivals:
    """A source that tells no time and no schema of its own: its clock is this machine's."""

    def look(self, micros: int) -> Look:
        """Return nothing: what there is of a schema, events tell."""
        return Look(micros, (), {}, {}, is_exact=False)

    def clock_micros(self) -> int:
        """Return the time of this machine."""
        return time.time_ns() // 1000

    def start_micros(self) -> int:
        """Return the beginning of time: whatever has been written belongs to the first cut."""
        return 1

    def as_stored(self, _table: str, _name: str, column: SeenColumn) -> SeenColumn:
        """Return a column as it is."""
        return column
