"""The true serial history as a file, one transaction per line, for checks of any reader."""

import json
from pathlib import Path
from typing import Any, Final, TextIO

from cdc_platform.model.base.timestamps import to_rfc3339
from cdc_platform.simulator.history.history import History
from cdc_platform.simulator.history.schema import SimColumn, SimTable
from cdc_platform.simulator.history.transactions import Change, Mod, Row, Transaction
from cdc_platform.simulator.wire.values import as_json
from cdc_platform.simulator.wire.wire import Plain

_NEVER: Final = -1


class HistoryFile:
    """Writes past transactions, from the beginning on, but no future ones."""

    def __init__(self, history: History, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._history = history
        self._file: TextIO = path.open("w", encoding="utf-8")
        self._written_micros = _NEVER

    def write_until(self, now_micros: int) -> None:
        """Write the transactions committed since the last call, up to a time."""
        begin = max(self._written_micros + 1, self._history.origin_micros)
        if self._written_micros == _NEVER and self._history.settings.preloaded_transfers:
            self._file.write(preloaded_line(self._history))
        for number in self._history.blocks(begin, now_micros):
            for transaction in self._history.block(number):
                if begin <= transaction.commit_micros <= now_micros:
                    self._file.write(transaction_line(transaction, self._history))
        self._written_micros = now_micros
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def preloaded_line(history: History) -> str:
    """Return the rows from before the change stream, as inserts without a transaction."""
    before_micros = history.origin_micros - 1
    schema = history.schemas.at(history.origin_micros)
    changes = [
        _change(table, Change(table.number, key, Mod.INSERT, None, row, (), 0))
        for table in schema.tables.values()
        for key, row in sorted(history.rows_at(table.number, before_micros).items())
    ]
    return _as_line({"commit_timestamp": None, "server_transaction_id": None, "changes": changes})


def transaction_line(transaction: Transaction, history: History) -> str:
    """Return a transaction as a line of JSON, with values as the source writes them in mods.

    `changes` are in the order of their effect; `new` and `old` are whole rows without their key, or null.
    """
    schema = history.schemas.at(transaction.commit_micros)
    changes = [_change(schema.by_number[change.table], change) for change in transaction.changes]
    line = {
        "commit_timestamp": to_rfc3339(transaction.commit_micros),
        "server_transaction_id": transaction.id,
        "transaction_tag": transaction.tag,
        "is_system_transaction": transaction.is_system,
        "changes": changes,
    }
    return _as_line(line)


def _as_line(fields: dict[str, Any]) -> str:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")) + "\n"


def _change(table: SimTable, change: Change) -> dict[str, Any]:
    row = change.new or change.old or ()
    return {
        "table": table.name,
        "mod_type": Mod(change.mod).name,
        "keys": _fields(table.key_columns, row),
        "new": None if change.new is None else _fields(table.value_columns, change.new),
        "old": None if change.old is None else _fields(table.value_columns, change.old),
    }


def _fields(columns: tuple[SimColumn, ...], row: Row) -> dict[str, Plain]:
    return {
        column.name: as_json(column.type, row[column.slot] if column.slot < len(row) else None)
        for column in columns
    }
