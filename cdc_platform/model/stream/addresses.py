"""Deletes that know their row by its physical address only, such as Oracle's rollback of an insert."""

from dataclasses import dataclass
from typing import Final

ADDRESS_ONLY: Final = "The event deletes a row that it knows by its ROWID only"
"""Beginning of the reason of a fault that finding the row's key cures."""
ADDRESS: Final = "row_id"
"""In the metadata of events, and of such faults: the physical address of the row."""
ORDER_KEY: Final = "_ordering_key"
"""In the metadata of such a fault: the ordering key that the event has."""


@dataclass(frozen=True)
class Addressed:
    """Such a delete: its event, the table and address of its row, and its ordering key."""

    event_id: str
    table: str
    address: str
    ordering_key: str
