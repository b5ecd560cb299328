"""Keys that several rows of one transaction share for a time: the first row comes before the later ones.

A database that checks keys at the end of a statement or transaction may give a key to a new row before the
old row releases it. By the order of the log alone, the key would be gone. The rows decide: a change belongs
to the key's old row unless its row is one that took the key within the transaction.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cdc_platform.model.stream.records import ModType

BEFORE: Final = " 0 "
"""Suffix that, followed by the change's ordering key, makes a key right after the first one."""

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class KeyUse:
    """Effect of a change on a key of a table within a transaction.

    Args:
        event_id: id of the event.
        table: its table.
        transaction_id: its transaction.
        keys: JSON of the key; a truncate has none.
        mod_type: kind of the change.
        ordering_key: its place in the source's order.
        follows: ordering key of the previous change in its transaction; None for the first one.
        before: known values of the row before the change, without the key.
        after: known values of the row after it.
    """

    event_id: str
    table: str
    transaction_id: str
    keys: str
    mod_type: ModType
    ordering_key: str
    follows: str | None = None
    before: Values = field(default_factory=dict)
    after: Values = field(default_factory=dict)

    @property
    def just_before(self) -> str:
        """The common prefix of all ordering keys right before this change."""
        # A text without its last character sorts right before the text.
        return self.ordering_key[:-1] if self.follows is None else self.follows


def parted_orders(uses: Iterable[KeyUse]) -> Mapping[str, str]:
    """Return new ordering keys, by event, for changes of rows whose key another row has taken since.

    Each change moves right before the change that took the key. Among rows with equal known values, the
    change belongs to the last one.

    Args:
        uses: changes of keys that rows took and left in one transaction, with the truncates among them.
    """
    of_tables: defaultdict[tuple[str, str], list[KeyUse]] = defaultdict(list)
    for use in uses:
        of_tables[use.transaction_id, use.table].append(use)
    return dict(orders for of_table in of_tables.values() for orders in _new_orders(of_table))


def _new_orders(uses: Iterable[KeyUse]) -> Iterator[tuple[str, str]]:
    keys: defaultdict[str, _Key] = defaultdict(_Key)
    for use in sorted(uses, key=lambda use: use.ordering_key):
        if use.mod_type is ModType.TRUNCATE:
            keys = defaultdict(_Key.without_rows)
            continue
        taker = keys[use.keys].take(use)
        if taker is not None:
            yield use.event_id, f"{taker.just_before}{BEFORE}{use.ordering_key}"


_MAX_ROWS: Final = 100
"""Maximum number of rows of a key at once that are compared with a change; only faulty streams have more."""


@dataclass(slots=True)
class _Row:
    """A row that has a key; ``number`` counts the rows that took it, 0 was there before."""

    number: int
    values: dict[str, Any] = field(default_factory=dict)

    def may_be(self, values: Values) -> bool:
        """Return whether no known value of the row contradicts these values."""
        return all(self.values[name] == value for name, value in values.items() if name in self.values)


@dataclass(slots=True)
class _Key:
    """The rows of one key in one transaction, change by change."""

    rows: list[_Row] = field(default_factory=lambda: [_Row(0)])
    takers: list[KeyUse] = field(default_factory=list)

    @classmethod
    def without_rows(cls) -> "_Key":
        """Return a key without rows."""
        return cls([])

    def take(self, use: KeyUse) -> KeyUse | None:
        """Apply the next change, and return the change that took its row's key, before which it belongs."""
        if use.mod_type is ModType.INSERT:
            self.takers.append(use)
            self.rows.append(_Row(len(self.takers), dict(use.after)))
            return None
        if not self.rows:
            return None
        newest = range(len(self.rows) - 1, max(-1, len(self.rows) - 1 - _MAX_ROWS), -1)
        place = next((place for place in newest if self.rows[place].may_be(use.before)), newest[0])
        row = self.rows[place]
        if use.mod_type is ModType.DELETE:
            del self.rows[place]
        else:
            row.values |= use.after
        is_known = bool(use.before) and row.number < len(self.takers)
        return self.takers[row.number] if is_known else None
