"""The bank's bookings, before anything is written: what the next transaction is."""

import random
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

ACCOUNTS: Final = "accounts"
TRANSFERS: Final = "transfers"
ACCOUNT_COLUMNS: Final = ("account_id", "owner", "balance", "opened_on", "labels")
TRANSFER_COLUMNS: Final = ("transfer_id", "from_account", "to_account", "amount", "fee", "booked_at", "note")

_FIRST_DAY: Final = date(2024, 1, 1).toordinal()
_FEWEST_ACCOUNTS: Final = 10
_CLOSING: Final = 0.02
_OPENING: Final = 0.04


@dataclass(frozen=True)
class Booking:
    """One transaction: the balances after it (None: closed), the account it opens, and its transfer row."""

    balances: dict[int, int | None]
    opened: int | None
    transfer: tuple[Any, ...]

    def write(self, batch: Any) -> None:
        """Add the mutations to a batch of the client, which commits them as one transaction."""
        open_balances = {key: balance for key, balance in self.balances.items() if balance is not None}
        if self.opened is not None:
            batch.insert(
                ACCOUNTS, ACCOUNT_COLUMNS, [account_row(self.opened, open_balances.pop(self.opened))]
            )
        if open_balances:
            batch.update(ACCOUNTS, ("account_id", "balance"), list(open_balances.items()))
        closed = [[key] for key, balance in self.balances.items() if balance is None]
        if closed:
            from google.cloud.spanner import KeySet

            batch.delete(ACCOUNTS, KeySet(keys=closed))
        batch.insert(TRANSFERS, TRANSFER_COLUMNS, [self.transfer])


@dataclass
class BankAccounts:
    """The balances as the bank's only writer knows them; `next_account` was never used before."""

    balances: dict[int, int]
    next_account: int

    def next_booking(self, dice: random.Random) -> Booking:
        """Return a transfer, or now and then one that opens an account or closes the one it empties."""
        source, target = dice.sample(sorted(self.balances), 2)
        balance, roll = self.balances[source], dice.random()
        if roll < _CLOSING and len(self.balances) > _FEWEST_ACCOUNTS:
            after: dict[int, int | None] = {source: None, target: self.balances[target] + balance}
            return Booking(after, None, _transfer_row(dice, source, target, balance, "closed"))
        opened = self.next_account if _CLOSING <= roll < _OPENING else None
        target = target if opened is None else opened
        amount = dice.randint(0, balance)
        after = {source: balance - amount, target: self.balances.get(target, 0) + amount}
        return Booking(after, opened, _transfer_row(dice, source, target, amount, None))

    def apply(self, booking: Booking) -> None:
        """Take over a booking that is committed."""
        for key, balance in booking.balances.items():
            if balance is None:
                del self.balances[key]
            else:
                self.balances[key] = balance
        if booking.opened is not None:
            self.next_account = booking.opened + 1


def account_row(key: int, balance: int) -> tuple[Any, ...]:
    """Return a whole row of `accounts`."""
    opened_on = date.fromordinal(_FIRST_DAY + key % 700)
    return (key, f"Owner {key}", balance, opened_on, ["private", "gold"][: key % 3])


def _transfer_row(
    dice: random.Random, source: int, target: int, amount: int, note: str | None
) -> tuple[Any, ...]:
    key = str(UUID(int=dice.getrandbits(128), version=4))
    booked_at = datetime.now(UTC).replace(microsecond=0)
    return (key, source, target, amount, Decimal(dice.randint(0, 500)) / 100, booked_at, note)
