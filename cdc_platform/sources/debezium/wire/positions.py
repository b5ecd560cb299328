"""Order and identity of events: text that sorts in the order of commits, and ids that duplicates share."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.model.stream.ordering_key import SEPARATOR
from cdc_platform.sources.debezium.wire.message_contents import (
    DELETE,
    TRUNCATE,
    DataEvent,
    LogicalMessage,
    MessageUnusable,
    Op,
    SourceInfo,
)
from cdc_platform.sources.json_codec import write_lines, write_sorted, write_sorted_lines

INCREMENTAL: Final = "incremental"
_UNSIGNED: Final = 2**64 - 1
_ORDER_DIGITS: Final = 10
ORDERS: Final = 10**_ORDER_DIGITS
_POSITION_DIGITS: Final = 19
_KEY: Final = SEPARATOR.join(("%016x", "%016x", f"%0{_ORDER_DIGITS}d", "%d", f"%0{_POSITION_DIGITS}d"))
_ORDER: Final = slice(34, 34 + _ORDER_DIGITS)
"""Place after commit and position, each of 16 digits and a separator."""
_PLACE: Final = _ORDER.stop + len(SEPARATOR) + 1
"""End of the rank, which has one digit, and of what is the same when the message is sent again."""
_NO_ORDER: Final = "0" * _ORDER_DIGITS
SNAPSHOT: Final = ("snapshot",)
"""End of the identity of a row of a snapshot."""
_LONGEST_KEY: Final = 200
_GIVE_UP: Final = 0
"""Rank of a row that gives up its key, before the row that takes it."""
_OTHERS: Final = 1


def is_snapshot(source: SourceInfo) -> bool:
    """Return whether an event is a row from a snapshot instead of a change."""
    return source.snapshot not in ("false", "")


def ordering_key(event: DataEvent | LogicalMessage, floor: int) -> str:
    """Return text that sorts in the order of commits, and of changes within a transaction.

    Its parts: the commit of the previous transaction (or its own, if the connector sends `commit_lsn`),
    the position in the log, the order in the transaction, the rank of a key change's halves, and the position
    of the message, which decides between equal parts.

    Args:
        event: the event.
        floor: position of the last snapshot before it: the first transaction after a snapshot does not state
            the previous commit.

    Raises:
        MessageUnusable: the event has no position.
    """
    commit, change = _log_position(event.source, floor)
    rank = _rank_of(event.op) if isinstance(event, DataEvent) else _OTHERS
    message = event.message
    position = message.offset if message.offset is not None else message.position
    return _KEY % (commit & _UNSIGNED, change & _UNSIGNED, _total_order(event), rank, position)


def change_keys(
    op: Op,
    commits: Sequence[int | None],
    changes: Sequence[int],
    orders: Sequence[int | None],
    places: Sequence[int],
) -> list[str]:
    """Return the ordering keys of changes that state the commit before their own, or their own.

    Args:
        op: their operation.
        commits: the positions of these commits.
        changes: the positions of the changes in the log.
        orders: their orders in their transactions, None where they state none.
        places: the places of their messages.

    Raises:
        ValueError: one of them states no commit.
    """
    if None in commits:
        raise ValueError(commits)
    stated, rank = cast("Sequence[int]", commits), _rank_of(op)
    return [
        _KEY % (commit & _UNSIGNED, change & _UNSIGNED, order or 0, rank, place)
        for commit, change, order, place in zip(stated, changes, orders, places, strict=True)
    ]


def _rank_of(op: Op) -> int:
    return _GIVE_UP if op is DELETE else _OTHERS


def _total_order(event: DataEvent | LogicalMessage) -> int:
    order = event.total_order or 0
    if not 0 <= order < ORDERS:
        raise MessageUnusable(f"`transaction.total_order` is not a position in a transaction: {order}.")
    return order


def have_total_order(keys: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return of each ordering key whether it contains the event's order in its transaction; null for null."""
    return pc.not_equal(pc.utf8_slice_codeunits(keys, _ORDER.start, _ORDER.stop), _NO_ORDER)


def orders_of(keys: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return ordering keys without the position of the message, which changes when it is sent again."""
    return pc.utf8_slice_codeunits(keys, 0, _PLACE)


def commit_of(key: str) -> int:
    """Return the first part of an ordering key: the commit before the event's commit, if known."""
    return int(key.split(SEPARATOR, maxsplit=1)[0], 16)


def snapshot_key(position: int) -> str:
    """Return the ordering key between all changes before a snapshot and its first row."""
    return _KEY % (position, 0, 0, 0, 0)


def needs_floor(source: SourceInfo) -> bool:
    """Return whether the ordering key of an event depends on the position of the last snapshot."""
    before = source.sequence[0] if source.sequence else None
    if source.snapshot == INCREMENTAL:
        return not before
    return not is_snapshot(source) and source.commit_lsn is None and before is None


def _log_position(source: SourceInfo, floor: int) -> tuple[int, int]:
    before, change = source.sequence or (None, source.lsn)
    if source.snapshot == INCREMENTAL:
        # The snapshot has every commit up to the last one, and no later write.
        if source.knows_commits:
            return before or floor, _UNSIGNED
        return before or floor, 0
    if change is None:
        change = source.lsn
    if change is None:
        raise MessageUnusable("The event has no position in the database's log: no `sequence` and no `lsn`.")
    if is_snapshot(source):
        return change, 0  # before all later writes, in any order of their commits
    if source.commit_lsn is not None:
        return source.commit_lsn, change
    if before is not None:
        return before, change
    # The first transaction after a snapshot; with connectors before 1.5 all of them, which are in order for
    # each key, not across keys.
    return max(change & _UNSIGNED, floor), change


def event_id(event: DataEvent, table: str) -> str:
    """Return the identity that an event shares only with its duplicates.

    The position in the log is not unique (COPY), nor is the order in a transaction, which repeats after a
    restart within a COPY; together with table and key they are. Rows without a key have only the order in the
    transaction; without transaction metadata, their duplicates cannot be recognised.
    """
    source = event.source
    lsn = source.lsn
    if lsn is None and source.sequence is not None and not is_snapshot(source):
        lsn = source.sequence[1]  # a flattened event may have the one without the other
    parts: list[Any] = [source.server, source.tx_id, lsn, event.total_order, source.schema, table]
    parts.append(_bound_length(write_sorted(event.key)))
    if source.snapshot == INCREMENTAL:
        parts += [source.sequence, source.micros]
    elif is_snapshot(source):
        parts += SNAPSHOT
    if event.key is None and event.op is not TRUNCATE and event.total_order is None:
        message = event.message
        parts += [message.topic, message.partition, message.offset, message.position]
    return write_sorted(parts)


def change_ids(
    source: tuple[str, str, str],
    kind: tuple[str, ...],
    transactions: Sequence[int],
    positions: Sequence[int],
    orders: Sequence[int | None],
    keys: Sequence[Mapping[str, Any]],
) -> list[str]:
    """Return the identities of changes by transactions of rows with keys.

    Args:
        source: server, schema and table.
        kind: what their identities end with: `SNAPSHOT` for the rows of a snapshot.
        transactions: the changes' transactions.
        positions: their positions in the log.
        orders: their orders in their transactions, None where they state none.
        keys: the keys of their rows.

    Raises:
        UnicodeEncodeError: a text is not Unicode.
    """
    server, schema, table = source
    parts = zip(transactions, positions, orders, write_sorted_lines(keys), strict=True)
    return write_lines(
        [
            (server, transaction, position, order, schema, table, _bound_length(key), *kind)
            for transaction, position, order, key in parts
        ]
    )


def _bound_length(text: str) -> str:
    return text if len(text) <= _LONGEST_KEY else sha256(text.encode()).hexdigest()
