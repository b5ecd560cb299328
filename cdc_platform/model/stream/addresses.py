"""Deletes that identify their row only by its physical address, such as Oracle's rollback of an insert."""

from dataclasses import dataclass
from typing import Final

ADDRESS_ONLY: Final = "The event deletes a row that it knows by its ROWID only"
"""Start of the reason of a fault that ends once the row's key is found."""
ADDRESS: Final = "row_id"
"""Metadata member of events, and of such faults: the physical address of the row."""
ORDERING_KEY: Final = "_ordering_key"
"""Metadata member of such a fault: the ordering key of the event."""


@dataclass(frozen=True)
class Addressed:
    """A delete by address: its event, the table and address of its row, and its ordering key."""

    event_id: str
    table: str
    address: str
    ordering_key: str
