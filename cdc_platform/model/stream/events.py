"""Events of sources that hand out events, in files or topics, in the form that becomes raw records."""

from dataclasses import dataclass
from typing import NamedTuple

from cdc_platform.model.stream.records import ModType


class SourceEvent(NamedTuple):
    """One change of one row, or of a whole table, as a source's event tells it.

    Values are texts in the JSON encoding that the change log has: numbers and booleans as JSON writes them
    (integers beyond 2^53 and decimals as texts), BYTES in base64, DATE as `2026-01-31`, TIMESTAMP as
    `2026-01-31T08:00:00.123456Z`, DATETIME the same without `Z`, arrays as JSON arrays of these.

    Args:
        table: name of the source's table, such as `public.orders`.
        mod_type: what happened; TRUNCATE has neither keys nor values.
        ordering_key: text whose order is the order of the source's changes.
        event_id: duplicates of the event share it.
        transaction_id: changes of one transaction share it; empty where the source does not say.
        source_micros: when the change committed at the source; None where the source does not say.
        column_types: JSON array of objects with name, type, is_primary_key and ordinal_position.
        keys: JSON object of the primary key's columns. Where changes come in order, equal keys have one text,
            which rows are followed by.
        new_values: JSON object of the other columns, after the change; None where there are none.
        old_values: JSON object of columns before the change, as far as the source sends them.
        is_whole_row: whether `new_values` names every column that the row has, but for the unavailable ones.
        previous_keys: JSON object of the key before a key change.
        unavailable_columns: columns that have a value which the source did not send.
        metadata: the source's own metadata, JSON.
        position: which event of its file it is, counted from 0, or its offset.
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
    is_whole_row: bool = True
    previous_keys: str | None = None
    unavailable_columns: tuple[str, ...] = ()
    metadata: str | None = None
    position: int = 0


@dataclass(frozen=True, slots=True)
class SourceMessage:
    """A message that somebody wrote into the source's log: a marker at which a cut may be asked for.

    ``ordering_key`` is that of changes, so that those before it are known. ``content`` is text; where the
    octets are none it is as the source sends them. ``event_id`` is what its duplicates share.
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
    """An event that cannot be used, and why; it goes to quarantine with its text, so that it can be replayed.

    ``position`` is None where a whole file cannot be read; ``transaction_id`` is empty where it is not known.
    ``message_id`` is what it shares with the same message that is sent again, where that is known.
    ``source_micros`` is that of a change which only lacks what the lake may find for it.
    ``ordering_key`` is that of the change it would be, empty where it is not known.
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
