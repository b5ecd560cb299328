"""Concurrent reads of the windows of one task, most of which only wait for the source.

If a partition announces others within its window, they are read with it, generation by generation.
"""

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from queue import Full, Queue
from typing import Final, TypeAlias

import pyarrow as pa

from cdc_platform.model.stream.generations import Generations, PartitionEnd
from cdc_platform.model.stream.read_windows import ReadWindow

AT_ONCE: Final = 8
"""With more, windows would wait for this process instead of the source."""
WAITING_BATCHES: Final = 2
"""Limit on memory: each reader holds one batch, and at most this many are queued."""
LOOK_S: Final = 0.2
"""Interval at which a reader with a full queue checks whether its batch is still needed."""

ReadOneWindow: TypeAlias = Callable[[ReadWindow], Generator[pa.RecordBatch, None, PartitionEnd | None]]


def read_together(
    read: ReadOneWindow, windows: Sequence[ReadWindow], generations: Generations | None = None
) -> Generator[pa.RecordBatch, None, None]:
    """Yield the batches of all windows as they arrive; those of one window stay in order.

    A caller that stops early ends the reads: no further window begins, and a running read stops at its next
    batch.

    Args:
        read: reads one window.
        windows: windows to read.
        generations: finds the children of partitions that end, to read them, too; None for no children.

    Raises:
        Exception: the exception of a read; outstanding batches of the other windows are dropped.
    """
    if len(windows) == 1 and generations is None:
        yield from read(windows[0])
        return
    if generations is not None:
        generations.begin(window.token for window in windows)
    yield from _Pool(read, windows, generations).batches()


class _Pool:
    def __init__(
        self, read: ReadOneWindow, windows: Sequence[ReadWindow], generations: Generations | None
    ) -> None:
        self._read, self._left, self._generations = read, deque(windows), generations
        self._items: Queue[pa.RecordBatch | Exception | None] = Queue(WAITING_BATCHES)
        self._is_over = threading.Event()
        self._change = threading.Condition()
        self._reading = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        readers = AT_ONCE if self._generations is not None else min(AT_ONCE, len(self._left))
        for number in range(readers):
            threading.Thread(target=self._run, name=f"windows-{number}", daemon=True).start()
        try:
            while readers:
                item = self._items.get()
                if item is None:
                    readers -= 1
                elif isinstance(item, Exception):
                    raise item
                else:
                    yield item
        finally:
            self._is_over.set()

    def _run(self) -> None:
        try:
            while (window := self._next()) is not None:
                with closing(self._read(window)) as batches:
                    end = self._hand_over(batches)
                self._continue(end)
        except Exception as error:  # noqa: BLE001  the task raises every error
            self._give(error)
        else:
            self._give(None)

    def _next(self) -> ReadWindow | None:
        """Return the next window; wait for children while others are read, and return None at the end."""
        with self._change:
            while not self._is_over.is_set():
                if self._left:
                    self._reading += 1
                    return self._left.popleft()
                if not self._reading:
                    break
                self._change.wait(LOOK_S)
        return None

    def _hand_over(
        self, batches: Generator[pa.RecordBatch, None, PartitionEnd | None]
    ) -> PartitionEnd | None:
        """Hand over the batches of a window and return the result of its read; None if it was stopped."""
        while True:
            try:
                batch = next(batches)
            except StopIteration as stop:
                end: PartitionEnd | None = stop.value
                return end
            if not self._give(batch):
                return None

    def _continue(self, end: PartitionEnd | None) -> None:
        with self._change:
            self._reading -= 1
            if end is not None and self._generations is not None:
                self._left.extend(self._generations.after(end))
            self._change.notify_all()

    def _give(self, item: pa.RecordBatch | Exception | None) -> bool:
        """Hand over an item; return False if nobody needs it any more."""
        while not self._is_over.is_set():
            try:
                self._items.put(item, timeout=LOOK_S)
            except Full:
                continue
            return True
        return False
