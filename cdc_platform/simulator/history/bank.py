"""The simulator's bank: it books, opens, closes and settles, and the sum of all balances never changes."""

import random
from collections import deque
from collections.abc import Callable, Iterator
from datetime import date
from typing import Final, NamedTuple

from cdc_platform.model.base.timestamps import to_rfc3339
from cdc_platform.simulator.history.schema import ALL_TYPES, DOCUMENTS, Schema, SimTable, bank_tables
from cdc_platform.simulator.history.transactions import Key, Mod, Row
from cdc_platform.simulator.history.typed_rows import text_of, typed_row
from cdc_platform.simulator.wire.simulator_settings import FEWEST_ACCOUNTS, SimulatorSettings
from cdc_platform.simulator.wire.values import Cell

OPENING_BALANCE: Final = 1000
TTL_TAG: Final = "RowDeletionPolicy"
BANK_SLOTS: Final = 7
"""Slots of a transfer that the bank itself fills; later ones belong to added columns."""

_FIRST_DAY: Final = date(2024, 1, 1).toordinal()
_BALANCE, _OWNER, _LABELS, _NOTE = 2, 1, 4, 6
_TTL_ROWS: Final = 5
_TARGETS: Final = 3
_RECENT: Final = 100
_DOCUMENTS: Final = 3
_DOCUMENT_EVERY_S: Final = 10
_TYPED_ROWS: Final = 200
_CLEARED, _TYPED, _DELETED, _WITH_MEMO = 0.3, 0.1, 0.2, 0.5


class BankStep(NamedTuple):
    """A change whose partition is not known yet."""

    table: int
    key: Key
    mod: Mod
    old: Row | None
    new: Row | None
    slots: tuple[int, ...] = ()


class Draft(NamedTuple):
    """A transaction whose timestamp is not known yet."""

    tag: str
    is_system: bool
    steps: list[BankStep]


class Bank:
    """All rows after the newest transaction, and the dice for the next one.

    It is the only writer, so it knows every row. Keys of closed accounts are reused.
    """

    def __init__(self, settings: SimulatorSettings, schema: Schema) -> None:
        self._settings = settings
        self._dice = random.Random(f"{settings.seed}/bank")  # noqa: S311 - simulated, and repeatable
        self._random = self._dice.random
        self.rows: dict[int, dict[Key, Row]] = {number: {} for number in schema.by_number}
        self.capacity = 2 * settings.accounts
        tables = [bank_tables(bank) for bank in range(settings.banks)]
        self._accounts = [schema.tables[accounts].number for accounts, _ in tables]
        self._transfers = [schema.tables[transfers].number for _, transfers in tables]
        self._open: list[list[int]] = [[] for _ in tables]
        self._closed = [list(range(self.capacity - 1, -1, -1)) for _ in tables]
        self._booked: deque[tuple[int, Key]] = deque()
        self._has_opened = False
        self._kinds: tuple[tuple[float, Callable[[Schema, int], Draft]], ...] = (
            (0.02, self._closing),
            (0.04, self._opening),
            (0.06, self._replacement),
            (0.08, self._renaming),
            (0.12, self._settlement),
            (0.18, self._payroll),
        )

    def preload(self, schema: Schema, micros: int) -> None:
        """Fill the tables with the rows from before the change stream."""
        for step in self._opening_steps():
            self._apply(step)
        self._has_opened = True
        for _ in range(self._settings.preloaded_transfers):
            source, target = self._pick_two()
            self._apply(self._booking(schema, source, target[1], 0, micros, "before the change stream"))

    def next_draft(self, schema: Schema, micros: int) -> Draft:
        """Return the next transaction, and apply it to the rows."""
        if self._has_opened:
            draft = self._any_draft(schema, micros)
        else:
            self._has_opened = True
            draft = Draft("opening", False, list(self._opening_steps()))
        for step in draft.steps:
            self._apply(step)
        return draft

    def _apply(self, step: BankStep) -> None:
        rows = self.rows.setdefault(step.table, {})
        if step.new is None:
            del rows[step.key]
        else:
            rows[step.key] = step.new

    def _any_draft(self, schema: Schema, micros: int) -> Draft:
        if len(self._booked) >= self._settings.keep_transfers + _TTL_ROWS:
            return Draft(TTL_TAG, True, [self._expiry() for _ in range(_TTL_ROWS)])
        extra = self._extra_steps(schema)
        if extra:
            return Draft("extra", False, extra)
        roll = self._random()
        make = next((make for share, make in self._kinds if roll < share), self._transfer)
        return make(schema, micros)

    def _opening_steps(self) -> Iterator[BankStep]:
        for bank, closed_accounts in enumerate(self._closed):
            for _ in range(self._settings.accounts):
                account = closed_accounts.pop()
                self._open[bank].append(account)
                yield self._insert(bank, account, OPENING_BALANCE)

    def _transfer(self, schema: Schema, micros: int) -> Draft:
        return Draft("transfer", False, self._payments(schema, micros, 1))

    def _payroll(self, schema: Schema, micros: int) -> Draft:
        return Draft("app=bank,action=payroll", False, self._payments(schema, micros, _TARGETS))

    def _payments(self, schema: Schema, micros: int, targets: int) -> list[BankStep]:
        source, *targets_picked = self._pick(1 + targets)
        balance = self._balance(source)
        amounts = [int(self._random() * (balance // targets + 1)) for _ in targets_picked]
        steps = [self._balance_step(source, balance - sum(amounts))]
        for other, amount in zip(targets_picked, amounts, strict=True):
            steps.append(self._balance_step(other, self._balance(other) + amount))
        return [*steps, self._booking(schema, source, targets_picked[0][1], sum(amounts), micros, None)]

    def _closing(self, schema: Schema, micros: int) -> Draft:
        (bank, account), target = self._pick_two()
        if len(self._open[bank]) <= FEWEST_ACCOUNTS:
            return self._transfer(schema, micros)
        balance, key = self._balance((bank, account)), (account,)
        self._open[bank].remove(account)
        self._closed[bank].append(account)
        steps = [
            BankStep(self._accounts[bank], key, Mod.DELETE, self._account((bank, account)), None),
            self._balance_step(target, self._balance(target) + balance),
            self._booking(schema, (bank, account), target[1], balance, micros, "closed"),
        ]
        return Draft("closing", False, steps)

    def _opening(self, schema: Schema, micros: int) -> Draft:
        source = self._pick(1)[0]
        bank, closed_accounts = source[0], self._closed[source[0]]
        if not closed_accounts:
            return self._transfer(schema, micros)
        balance = self._balance(source)
        amount = int(self._random() * (balance + 1))
        account = closed_accounts.pop(int(self._random() * len(closed_accounts)))
        self._open[bank].append(account)
        steps = [
            self._insert(bank, account, amount),
            self._balance_step(source, balance - amount),
            self._booking(schema, source, account, amount, micros, "opened"),
        ]
        return Draft("opening", False, steps)

    def _replacement(self, _schema: Schema, _micros: int) -> Draft:
        """Delete an account and insert it again, as a REPLACE does."""
        bank, account = self._pick(1)[0]
        old = self._account((bank, account))
        new = self._insert(bank, account, old[_BALANCE])
        deletion = BankStep(self._accounts[bank], (account,), Mod.DELETE, old, None)
        return Draft("replacement", False, [deletion, new])

    def _renaming(self, _schema: Schema, _micros: int) -> Draft:
        bank, account = self._pick(1)[0]
        old = self._account((bank, account))
        new = (account, self._owner(account), old[_BALANCE], old[3], self._labels())
        step = BankStep(self._accounts[bank], (account,), Mod.UPDATE, old, new, (_OWNER, _LABELS))
        return Draft("", False, [step])

    def _settlement(self, schema: Schema, micros: int) -> Draft:
        """Set or clear the note of a recent transfer, and columns that its table has got since."""
        if not self._booked:
            return self._transfer(schema, micros)
        position = int(self._random() * min(_RECENT, len(self._booked)))
        number, key = self._booked[-1 - position]
        old, table = self.rows[number][key], schema.by_number[number]
        new = list(old) + [None] * (table.slots - len(old))
        slots = [column.slot for column in table.value_columns if column.slot >= _NOTE]
        for slot in slots:
            new[slot] = None if self._happens(_CLEARED) else f"settled {int(self._random() * 1000)}"
        steps = [BankStep(number, key, Mod.UPDATE, old, tuple(new), tuple(slots))]
        for new_table in schema.tables.values():
            if new_table.name.startswith("audit_") and len(steps) < _TTL_ROWS:
                steps.append(self._audit(new_table))
        return Draft("settlement", False, steps)

    def _extra_steps(self, schema: Schema) -> list[BankStep]:
        types_table, documents = schema.tables.get(ALL_TYPES), schema.tables.get(DOCUMENTS)
        if types_table is not None and self._happens(_TYPED):
            return self._typed_steps(types_table)
        if documents is not None and self._random() * self._settings.rate * _DOCUMENT_EVERY_S < 1:
            key = (int(self._random() * _DOCUMENTS),)
            body = text_of(self._dice, self._settings.document_bytes)
            return [self._upsert(documents, key, (*key, body))]
        return []

    def _typed_steps(self, table: SimTable) -> list[BankStep]:
        number = int(self._random() * _TYPED_ROWS)
        key = (number, f"part {number % 7}")
        old = self.rows[table.number].get(key)
        if old is not None and self._happens(_DELETED):
            return [BankStep(table.number, key, Mod.DELETE, old, None)]
        return [self._upsert(table, key, typed_row(self._dice, table, key))]

    def _upsert(self, table: SimTable, key: Key, new: Row) -> BankStep:
        old = self.rows[table.number].get(key)
        mod = Mod.INSERT if old is None else Mod.UPDATE
        return BankStep(table.number, key, mod, old, new, table.value_slots if old is not None else ())

    def _audit(self, table: SimTable) -> BankStep:
        key = self._identifier()
        row = (key, f"seen {int(self._random() * 1000)}", int(self._random() * 1_000_000))
        return BankStep(table.number, (key,), Mod.INSERT, None, row)

    def _expiry(self) -> BankStep:
        number, key = self._booked.popleft()
        return BankStep(number, key, Mod.DELETE, self.rows[number][key], None)

    def _insert(self, bank: int, account: int, balance: int) -> BankStep:
        opened_on = date.fromordinal(_FIRST_DAY + account % 700).isoformat()
        row = (account, self._owner(account), balance, opened_on, self._labels())
        return BankStep(self._accounts[bank], (account,), Mod.INSERT, None, row)

    def _booking(
        self, schema: Schema, source: tuple[int, int], target: int, amount: int, micros: int, note: str | None
    ) -> BankStep:
        number, key = self._transfers[source[0]], self._identifier()
        fee = f"{int(self._random() * 500) / 100:g}"
        row: list[Cell] = [key, source[1], target, amount, fee, to_rfc3339(micros), note]
        slots = schema.by_number[number].slots
        if slots > BANK_SLOTS:
            row += [
                f"memo {amount}" if self._happens(_WITH_MEMO) else None for _ in range(slots - BANK_SLOTS)
            ]
        self._booked.append((number, (key,)))
        return BankStep(number, (key,), Mod.INSERT, None, tuple(row))

    def _balance_step(self, account: tuple[int, int], balance: int) -> BankStep:
        old = self._account(account)
        new = (*old[:_BALANCE], balance, *old[_BALANCE + 1 :])
        return BankStep(self._accounts[account[0]], (account[1],), Mod.UPDATE, old, new, (_BALANCE,))

    def _account(self, account: tuple[int, int]) -> Row:
        return self.rows[self._accounts[account[0]]][(account[1],)]

    def _balance(self, account: tuple[int, int]) -> int:
        balance: int = self._account(account)[_BALANCE]
        return balance

    def _pick_two(self) -> tuple[tuple[int, int], tuple[int, int]]:
        first, other = self._pick(2)
        return first, other

    def _pick(self, count: int) -> list[tuple[int, int]]:
        """Return distinct open accounts."""
        accounts: list[tuple[int, int]] = []
        while len(accounts) < count:
            bank = int(self._random() * len(self._open))
            account = (bank, self._open[bank][int(self._random() * len(self._open[bank]))])
            if account not in accounts:
                accounts.append(account)
        return accounts

    def _happens(self, probability: float) -> bool:
        return self._random() < probability

    def _owner(self, account: int) -> str:
        return f"Owner {account} №{int(self._random() * 1000)}"

    def _labels(self) -> tuple[str, ...]:
        return ("private", "gold")[: int(self._random() * 3)]

    def _identifier(self) -> str:
        digits = f"{self._dice.getrandbits(128):032x}"
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"
