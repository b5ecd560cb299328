"""The windows of one task: all are read, several at a time, and the failure of one is reported."""

import threading
import time
from collections.abc import Generator

import pyarrow as pa
import pytest

from cdc_platform.model.stream.read_windows import ReadWindow
from cdc_platform.sources.spanner.stream import window_pool
from cdc_platform.sources.spanner.stream.window_pool import AT_ONCE, read_together

WINDOWS = [ReadWindow(f"token-{number}", 0, 1) for number in range(3 * AT_ONCE)]
BATCHES = 3


def batch(token: str, number: int) -> pa.RecordBatch:
    """Return a batch that says where it comes from."""
    return pa.RecordBatch.from_pylist([{"token": token, "number": number}])


def read(window: ReadWindow) -> Generator[pa.RecordBatch, None, None]:
    """Yield the batches of a window."""
    for number in range(BATCHES):
        yield batch(window.token, number)


def rows(batches: list[pa.RecordBatch]) -> list[tuple[str, int]]:
    """Return where batches come from."""
    return [(row["token"], row["number"]) for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("count", [1, 2, len(WINDOWS)])
def test_every_window_is_read_once_and_in_its_order(count: int) -> None:
    """Batches of different windows may alternate, those of one window come as it gives them."""
    rows_read = rows(list(read_together(read, WINDOWS[:count])))

    expected = [(window.token, number) for window in WINDOWS[:count] for number in range(BATCHES)]
    assert expected == sorted(rows_read, key=lambda row: (int(row[0].removeprefix("token-")), 0))


def test_windows_are_read_at_the_same_time() -> None:
    """A window that waits for the source does not keep the others waiting."""
    together = threading.Barrier(AT_ONCE, timeout=120)

    def waits(window: ReadWindow) -> Generator[pa.RecordBatch, None, None]:
        together.wait()
        yield batch(window.token, 0)

    assert len(list(read_together(waits, WINDOWS[:AT_ONCE]))) == AT_ONCE


def test_what_reading_raises_fails_the_task() -> None:
    """Errors of the source are reported by their window; any other is a bug and stops everything."""

    def fails(window: ReadWindow) -> Generator[pa.RecordBatch, None, None]:
        yield batch(window.token, 0)
        raise ZeroDivisionError(window.token)

    with pytest.raises(ZeroDivisionError, match="token-"):
        list(read_together(fails, WINDOWS))


def test_a_reader_that_nobody_listens_to_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that is cancelled leaves neither threads nor open reads behind, and holds few batches."""
    monkeypatch.setattr(window_pool, "LOOK_S", 0.01)
    opened, closed = list[str](), list[str]()

    def endless(window: ReadWindow) -> Generator[pa.RecordBatch, None, None]:
        try:
            while True:
                opened.append(window.token)
                yield batch(window.token, 0)
        finally:
            closed.append(window.token)

    batches = read_together(endless, WINDOWS)
    next(batches)
    time.sleep(0.05)
    assert len(opened) <= 1 + AT_ONCE + window_pool.WAITING_BATCHES
    batches.close()
    give_up_at = time.monotonic() + 120
    while len(closed) < AT_ONCE and time.monotonic() < give_up_at:
        time.sleep(0.01)

    assert sorted(closed) == sorted(window.token for window in WINDOWS[:AT_ONCE])
    assert set(opened) == set(closed)
