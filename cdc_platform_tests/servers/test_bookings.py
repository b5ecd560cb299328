import random

from hypothesis import given
from hypothesis import strategies as st

from cdc_platform_tests.servers.bookings import BankAccounts, Booking


def bookings(seed: int, count: int) -> tuple[BankAccounts, list[Booking]]:
    """Return the balances of 20 accounts after so many bookings, and the bookings."""
    dice = random.Random(seed)  # noqa: S311 - the example of a seed
    bank_accounts = BankAccounts(dict.fromkeys(range(20), 1000), 20)
    bookings = []
    for _ in range(count):
        booking = bank_accounts.next_booking(dice)
        bank_accounts.apply(booking)
        bookings.append(booking)
    return bank_accounts, bookings


@given(st.integers(0, 2**32), st.integers(1, 200))
def test_no_booking_changes_the_sum(seed: int, count: int) -> None:
    """After any openings and closings, the sum of all balances is constant, and no balance is negative."""
    bank_accounts, _ = bookings(seed, count)

    assert sum(bank_accounts.balances.values()) == 20_000
    assert min(bank_accounts.balances.values()) >= 0


def test_accounts_open_and_close() -> None:
    """Bookings make every kind of change: new rows, changed ones, and rows that go."""
    bank_accounts, done = bookings(seed=1, count=1000)

    opened = [booking.opened for booking in done if booking.opened is not None]
    closed = [key for booking in done for key, balance in booking.balances.items() if balance is None]
    assert opened == list(range(20, bank_accounts.next_account))
    assert len(closed) > 5
    assert len(set(closed)) == len(closed)


def test_seed_repeats_the_transfers() -> None:
    """The same seed gives the same keys, accounts and amounts."""
    first, second = ([booking.transfer[:5] for booking in bookings(seed=7, count=50)[1]] for _ in range(2))

    assert first == second
