"""Events of event sources, in files or topics, in the form that becomes raw records."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from cdc_platform.model.stream.records import ModType


class SourceEvent(NamedTuple):
    """One change of one row, or of a whole table, decoded from a source's event.

    Values have the JSON encoding of the change log: numbers and booleans as JSON writes them (integers
    beyond 2^53 and decimals as strings), BYTES in base64, DATE as `2026-01-31`, TIMESTAMP as
    `2026-01-31T08:00:00.123456Z`, DATETIME the same without `Z`, arrays as JSON arrays of these.

    Args:
        table: name of the source's table, such as `public.orders`.
        mod_type: the operation; TRUNCATE has neither keys nor values.
        ordering_key: text that sorts in the order of the source's changes.
        event_id: identity, shared by duplicates of the event.
        transaction_id: identity of the transaction; empty if the source does not state it.
        source_micros: commit time of the change at the source; None if the source does not state it.
        column_types: JSON array of objects with name, type, is_primary_key and ordinal_position; see
            observed_columns.py.
        keys: JSON object of the primary key's columns. If changes come in order, equal keys have equal text,
            and the text identifies a row.
        new_values: JSON object of all other columns after the change, except the unavailable ones; None if
            there are none.
        old_values: JSON object of the columns before the change that the source sends.
        previous_keys: JSON object of the key before a key change.
        unavailable_columns: columns whose values the source did not send.
        metadata: the source's own metadata, JSON.
        position: number of the event in its file, counted from 0, or its offset.
    """

    table: str
    mod_type: ModType
    ordering_key: str
    event_id: str
    transaction_id: str
    source_micros: int | None
    column_types: str
    keys: str
    new_values: str | None
    old_values: str | None = None
    previous_keys: str | None = None
    unavailable_columns: tuple[str, ...] = ()
    metadata: str | None = None
    position: int = 0


@dataclass(frozen=True, slots=True)
class ChangeRun:
    """Changes of one table by one operation, stored by column.

    The fields are those of `SourceEvent`: a sequence has one value for each change. ``new_values`` and
    ``old_values`` are None if no change has any, ``unavailable_columns`` is empty if no change lacks one.
    """

    table: str
    mod_type: ModType
    column_types: str
    ordering_keys: Sequence[str]
    event_ids: Sequence[str]
    transaction_ids: Sequence[str]
    source_micros: Sequence[int | None]
    keys: Sequence[str]
    new_values: Sequence[str] | None
    old_values: Sequence[str] | None
    unavailable_columns: Sequence[tuple[str, ...]]
    metadata: Sequence[str]
    positions: Sequence[int]

    def __len__(self) -> int:
        return len(self.positions)

    def events(self) -> Iterator[SourceEvent]:
        """Yield the changes one by one."""
        nothing = (None,) * len(self)
        for place in zip(
            *(self.ordering_keys, self.event_ids, self.transaction_ids, self.source_micros, self.keys),
            *(self.new_values or nothing, self.old_values or nothing),
            *(self.unavailable_columns or ((),) * len(self), self.metadata, self.positions),
            strict=True,
        ):
            *identity, keys, new_values, old_values, unavailable, metadata, position = place
            row = self.column_types, keys, new_values, old_values, None
            yield SourceEvent._make(
                (self.table, self.mod_type, *identity, *row, unavailable, metadata, position)
            )


@dataclass(frozen=True, slots=True)
class SourceMessage:
    """A message that a user wrote into the source's log; users can ask for a cut at such a marker.

    ``ordering_key`` orders it among the changes. ``content`` is text, or, if the bytes are not text, the
    encoding that the source sends. Duplicates share ``event_id``.
    """

    prefix: str
    content: str
    ordering_key: str
    event_id: str
    transaction_id: str
    lsn: int | None
    source_micros: int | None
    position: int


@dataclass(frozen=True, slots=True)
class FaultyEvent:
    """An event that cannot be used, with the reason; quarantine keeps its text for a replay.

    ``position`` is None if a whole file cannot be read. ``transaction_id`` and ``ordering_key`` are empty if
    unknown; ``ordering_key`` is that of the change that the event describes. ``message_id`` identifies the
    message when it is sent again, if known. ``source_micros`` and ``column_types`` are set only for a change
    that lacks nothing but data which the lake may supply.
    """

    reason: str
    text: str
    position: int | None = None
    table: str | None = None
    event_id: str | None = None
    metadata: str | None = None
    transaction_id: str = ""
    message_id: str | None = None
    source_micros: int | None = None
    ordering_key: str = ""
    column_types: str | None = None


ADDRESS_ONLY: Final = "The event deletes a row that it knows by its ROWID only"
"""Start of the reason of a fault that ends once the row's key is found."""
ADDRESS: Final = "row_id"
"""Metadata member of events, and of such faults: the physical address of the row."""
ORDERING_KEY: Final = "_ordering_key"
"""Metadata member of such a fault: the ordering key of the event."""


@dataclass(frozen=True)
class AddressedDelete:
    """A delete by address: its event, the table and address of its row, and its ordering key.

    ``database`` is the one in which the address is valid; empty if the event does not state it.
    """

    event_id: str
    table: str
    address: str
    ordering_key: str
    database: str
