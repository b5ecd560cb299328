"""Reference in plain Python: the versions of every row, and the rows that stay when they are deleted."""

from dataclasses import dataclass, replace

from cdc_platform_tests.support.history import History, Key, Row, Transaction


@dataclass(frozen=True)
class Version:
    """Version of a row between two moments; ``until_micros`` is exclusive, None while it is current."""

    key: Key
    row: Row
    transaction_id: str
    since_micros: int
    until_micros: int | None = None


@dataclass(frozen=True)
class KeptRow:
    """A row that stays; ``deleted_micros`` is None while it lives."""

    row: Row
    deleted_micros: int | None = None


def versions_at(history: History, at_micros: int) -> dict[str, list[Version]]:
    """Return the versions of all tables that transactions committed at or before a moment have made."""
    ended: dict[str, list[Version]] = {table.name: [] for table in history.tables}
    current: dict[tuple[str, Key], Version] = {}
    for transaction in _until(history, at_micros):
        for (table, key), row in _left_by(transaction).items():
            before = current.pop((table, key), None)
            if before is not None:
                ended[table].append(replace(before, until_micros=transaction.commit_micros))
            if row is not None:
                made = Version(key, row, transaction.transaction_id, transaction.commit_micros)
                current[table, key] = made
    for (table, _), version in current.items():
        ended[table].append(version)
    return ended


def kept_rows_at(history: History, at_micros: int) -> dict[str, dict[Key, KeptRow]]:
    """Return all rows that could ever be visible in each table, deleted ones in their last state."""
    rows: dict[str, dict[Key, KeptRow]] = {table.name: {} for table in history.tables}
    for transaction in _until(history, at_micros):
        newest = {
            (change.table, change.key): change.new for change in transaction.changes if change.new is not None
        }
        for (table, key), row in _left_by(transaction).items():
            before = rows[table].get(key)
            if row is not None:
                rows[table][key] = KeptRow(row)
            elif before is not None and before.deleted_micros is None:
                rows[table][key] = KeptRow(newest.get((table, key), before.row), transaction.commit_micros)
    return rows


def _until(history: History, at_micros: int) -> list[Transaction]:
    return [transaction for transaction in history.transactions if transaction.commit_micros <= at_micros]


def _left_by(transaction: Transaction) -> dict[tuple[str, Key], Row | None]:
    """Return what a transaction leaves of each row that it touches."""
    return {(change.table, change.key): change.new for change in transaction.changes}
