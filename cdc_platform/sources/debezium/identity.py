"""Replica identities: what the image before a change can be trusted for, and the one that cannot be used."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from cdc_platform.sources.debezium.envelope import DataEvent, Op, Unreadable

ADVICE: Final = (
    "The table's replica identity is an index beside its primary key, so that deletes and key changes name a "
    "key that is made up (0) and rows cannot be told apart. Run ALTER TABLE ... REPLICA IDENTITY FULL (or "
    "DEFAULT), let the connector take a new snapshot of the table, and begin the table anew"
)


_EMPTY: Final[tuple[Any, ...]] = (
    *("", 0, False, [], {}),
    # as JSON, decimal, UUID and moment
    *("{}", "AA==", "0", "00000000-0000-0000-0000-000000000000", "1970-01-01T00:00:00Z"),
)


def has_content(value: Any) -> bool:
    """Whether a value is neither null nor what stands for one in a column that is NOT NULL."""
    return value is not None and value not in _EMPTY


def tells_more_than_key(event: DataEvent) -> bool:
    """Whether the image before has content beyond the key, as it has under FULL and under an index."""
    if event.before is None or event.is_flat:
        return False
    keys = event.key or {}
    return any(name not in keys and has_content(value) for name, value in event.before.items())


def check_key(known: dict[str, list[str]], event: DataEvent, table: str) -> None:
    """Learn which columns are a table's key.

    Args:
        known: key columns of each table of the lake.
        event: an event.
        table: the event's table in the lake.

    Raises:
        Unreadable: they are others than before.
    """
    if event.op is Op.TRUNCATE:
        return
    key = sorted(event.key or ())
    before = known.setdefault(table, key)
    if key != before:
        raise Unreadable(
            f"The key of `{table}` is ({_listed(key)}) now, and was ({_listed(before)}): rows of both cannot "
            "be told apart in one table. Let the connector take a new snapshot of it, and read it in a new "
            "pipeline."
        )


def check_key_types(known: dict[str, dict[str, str]], types: Mapping[str, str], table: str) -> None:
    """Learn which types the columns of a table's key have.

    Args:
        known: types in the lake of the key columns of each table of the lake.
        types: those of an event.
        table: the event's table in the lake.

    Raises:
        Unreadable: some have another type than before.
    """
    before = known.setdefault(table, dict(types))
    if before == types:
        return
    name = next((name for name in types if types[name] != before.get(name, types[name])), None)
    if name is not None:
        raise Unreadable(
            f"The key's column `{name}` of `{table}` is {types[name]} now, and was {before[name]}: the rows "
            "that are there would lose their keys. Let the connector take a new snapshot of the table, and "
            "read it in a new pipeline; a type that holds the values of both, declared there in `columns`, "
            "outlives such a change."
        )


def _listed(key: Sequence[str]) -> str:
    return ", ".join(key) or "none"


def shows_full(event: DataEvent) -> bool:
    """Whether only FULL gives such an event: an update with the row before it, under the same key."""
    if event.op is not Op.UPDATE or event.before is None or event.is_flat:
        return False
    keys = event.key
    if not keys:
        return True
    return tells_more_than_key(event) and all(
        name in event.before and event.before[name] == value for name, value in keys.items()
    )


def shows_unusable(event: DataEvent) -> bool:
    """Whether the event is one that only an index beside the key gives: content before, but no key."""
    if event.op is not Op.DELETE or not event.key:
        return False
    return tells_more_than_key(event) and not any(has_content(value) for value in event.key.values())
