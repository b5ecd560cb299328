"""Reads the slices of one task, several at a time: most of them only wait for the source."""

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from queue import Full, Queue
from typing import Final, TypeAlias

import pyarrow as pa

from cdc_platform.model.slices import Slice

AT_ONCE: Final = 8
"""More would wait for this process, not for the source."""
WAITING_BATCHES: Final = 2
"""Bounds the memory: each reader holds one batch, and so many lie ready."""
LOOK_S: Final = 0.2
"""How often a reader that cannot hand its batch over looks whether anybody still wants it."""

ReadSlice: TypeAlias = Callable[[Slice], Generator[pa.RecordBatch, None, None]]


def read_together(read: ReadSlice, slices: Sequence[Slice]) -> Generator[pa.RecordBatch, None, None]:
    """Yield the batches of all slices as they come; those of one slice are in its order.

    A caller that stops early ends the reads: no further slice is begun, and what is being read of one is
    dropped with its next batch.

    Raises:
        Exception: whatever a read raises; what the other slices have not given yet is dropped.
    """
    if len(slices) == 1:
        yield from read(slices[0])
        return
    yield from _Pool(read, slices).batches()


class _Pool:
    def __init__(self, read: ReadSlice, slices: Sequence[Slice]) -> None:
        self._read, self._left = read, deque(slices)
        self._found: Queue[pa.RecordBatch | Exception | None] = Queue(WAITING_BATCHES)
        self._is_over = threading.Event()

    def batches(self) -> Iterator[pa.RecordBatch]:
        reading = min(AT_ONCE, len(self._left))
        for number in range(reading):
            threading.Thread(target=self._run, name=f"slices-{number}", daemon=True).start()
        try:
            while reading:
                found = self._found.get()
                if found is None:
                    reading -= 1
                elif isinstance(found, Exception):
                    raise found
                else:
                    yield found
        finally:
            self._is_over.set()

    def _run(self) -> None:
        try:
            while (piece := self._next()) is not None:
                with closing(self._read(piece)) as batches:
                    for batch in batches:
                        if not self._give(batch):
                            return
        except Exception as error:  # noqa: BLE001  whatever it is, the task raises it
            self._give(error)
        else:
            self._give(None)

    def _next(self) -> Slice | None:
        if self._is_over.is_set():
            return None
        try:
            return self._left.popleft()
        except IndexError:
            return None

    def _give(self, found: pa.RecordBatch | Exception | None) -> bool:
        """Hand over what was found; False when nobody wants it any more."""
        while not self._is_over.is_set():
            try:
                self._found.put(found, timeout=LOOK_S)
            except Full:
                continue
            return True
        return False
